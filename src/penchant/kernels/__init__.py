"""Fused softmax kernels for an accelerator, written in Pallas: what XLA alone would send through device memory stays in registers.

They compute the two quantities that `settings.context_sums` needs and nothing else, so that every caller runs unchanged on a
processor. On a machine without an accelerator they run interpreted, which is how the tests check them.
"""
