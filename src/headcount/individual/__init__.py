"""One individual: discrete models, Markov chains and trees, junction trees and belief propagation."""

from headcount.errors import FaultsError, ModelError
from headcount.individual._discrete import DiscreteModel
from headcount.individual._log_linear import LogLinearTransitions
from headcount.individual._memory import HomeChain, MemoryChain
from headcount.individual._model import GONE_STATE, HIDDEN_STATE, WAITING_STATE, Larger, Model
from headcount.individual._open_chain import ArrivingChain, OpenChain
from headcount.individual._records import Followed, Records, follow, join_records
from headcount.individual._records import log_prob as record_log_prob
from headcount.individual._rooted_models import HiddenStateChain, MarkovChain, Tree
from headcount.individual._semi_markov import SemiMarkovChain, older
from headcount.individual.junction_tree import JunctionTree
from headcount.individual.rooted_tree import FactoredTree, Place, RootedTree, factored, node_beliefs, tilted

__all__ = [
    "GONE_STATE",
    "HIDDEN_STATE",
    "WAITING_STATE",
    "ArrivingChain",
    "DiscreteModel",
    "FactoredTree",
    "FaultsError",
    "Followed",
    "HiddenStateChain",
    "HomeChain",
    "JunctionTree",
    "Larger",
    "LogLinearTransitions",
    "MarkovChain",
    "MemoryChain",
    "Model",
    "ModelError",
    "OpenChain",
    "Place",
    "Records",
    "RootedTree",
    "SemiMarkovChain",
    "Tree",
    "factored",
    "follow",
    "join_records",
    "node_beliefs",
    "older",
    "record_log_prob",
    "tilted",
]
