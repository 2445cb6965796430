"""Which margin does an optimiser maximise? Descent in other norms, momentum, Adam and Muon on separable data."""

from ...lab import Paper
from . import theorems

FILES = ("steepest", "adam", "epsilon", "muon", "next_token")
PAPER = Paper("which_margin", theorems.FAN, __name__, theorems.THEOREMS, FILES, ("figures",))
