"""Published methods that no engine of the library uses: the paper's sweeps over edges, NLBP, the Markov-basis sampler of 2011."""

from reproduction.rivals.edge_ep import EdgeEP
from reproduction.rivals.gibbs import Gibbs
from reproduction.rivals.nlbp import NLBP

__all__ = ["NLBP", "EdgeEP", "Gibbs"]
