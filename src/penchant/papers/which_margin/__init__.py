"""Which margin does an optimiser maximise? Sign descent and Adam on separable data: the linf margin."""

from ...lab import Paper
from . import theorems

PAPER = Paper("which_margin", theorems.ZHANG, __name__, theorems.THEOREMS, (), ())
