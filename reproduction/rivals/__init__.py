"""Published methods that no engine of the library uses, to compare with: NLBP, and the Markov-basis sampler of 2011."""

from reproduction.rivals.gibbs import Gibbs
from reproduction.rivals.nlbp import NLBP

__all__ = ["NLBP", "Gibbs"]
