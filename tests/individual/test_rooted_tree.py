"""Places on a rooted tree: which node or edge a scope is, and its tables turned to the tree's order and back."""

import numpy as np
import pytest
from scipy import sparse

from headcount.individual import MarkovChain, ModelError, RootedTree, Tree


@pytest.fixture
def tree() -> RootedTree:
    model = Tree([0.5, 0.5], {"b": ("a", np.full((2, 3), 1 / 3)), "c": ("b", np.full((3, 4), 1 / 4))})
    return model.rooted()


def test_a_variable_is_its_node(tree: RootedTree) -> None:
    """place((v,)) is the index of v, and nothing is turned."""
    for k, v in enumerate(tree.variables):
        place = tree.place((v,))
        assert (place.node, place.edge, place.turned, place.shape) == (k, False, False, (tree.sizes[k],))
        values = np.arange(float(tree.sizes[k]))
        assert place.to_tree(values) is values


def test_an_edge_is_its_child_in_either_order(tree: RootedTree) -> None:
    """(parent, child) and (child, parent) are the same edge; only the second is turned."""
    forward, back = tree.place(("b", "c")), tree.place(("c", "b"))
    assert (forward.node, forward.edge, forward.turned, forward.shape) == (2, True, False, (3, 4))
    assert (back.node, back.edge, back.turned, back.shape) == (2, True, True, (3, 4))


def test_turning_is_transposing(tree: RootedTree) -> None:
    """A scope's table, flat or not, with leading axes or sparse, becomes the tree's by a transpose, and comes back."""
    place = tree.place(("c", "b"))
    table = np.arange(24.0).reshape(2, 4, 3)
    turned = np.stack([t.T for t in table])
    np.testing.assert_array_equal(place.turn(table), turned)
    np.testing.assert_array_equal(place.turn(sparse.csr_array(table[0])).toarray(), table[0].T)
    np.testing.assert_array_equal(place.to_tree(table.reshape(2, 12)), turned.reshape(2, 12))
    np.testing.assert_array_equal(place.to_scope(turned.reshape(2, 12)), table.reshape(2, 12))


@pytest.mark.parametrize("scope", [(), ("a", "c"), ("a", "b", "c"), ("x",), ("a", "x")])
def test_other_scopes_are_refused(tree: RootedTree, scope: tuple[str, ...]) -> None:
    """Neither a variable nor an edge: the message names the scope."""
    with pytest.raises(ModelError, match="neither a variable nor an edge"):
        tree.place(scope)


def test_domain_of_a_scope() -> None:
    """model.domain(scope) has the scope's names in the order given, and their sizes."""
    chain = MarkovChain([0.5, 0.3, 0.2], [np.full((3, 2), 0.5)], times=["race", "party"])
    domain = chain.domain(("party", "race"))
    assert (domain.scope, domain.shape) == (("party", "race"), (2, 3))
