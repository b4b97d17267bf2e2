"""The update rules of `hedge`, compiled."""

from semicyclic.jit import jit_together
from semicyclic.method import hedge

*_, learn_losses, in_play, play = jit_together(hedge.RULES)
