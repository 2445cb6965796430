from .settings.base import Setting
from .settings.classification import Classification
from .settings.tokens import TokenSelection
from .settings.parametrisations import Direct, Gram
from .settings.losses import Exponential, Logistic, Correlation
from .references.bracket import bracket
from .references.euclidean_margin import max_margin
from .optimisers.base import *
from .optimisers.memory import Adam
from .training.train import train
from .training.events import *
from .training.recorders import *
from .flow.flow import GradientFlow, Levels
from .flow.clocks import *
