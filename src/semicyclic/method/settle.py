"""Compiled: the rules of `hedge`, as kernels call them."""

from semicyclic.method import hedge
from semicyclic.method.jit import jit_together

*_, learn_losses, in_play, play = jit_together(hedge.RULES)
