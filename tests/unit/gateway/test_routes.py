"""What gateways tell of their sides is bounded, and they say how much they left out."""

from hubbub.gateway.routes import _shorten
from hubbub.gateway.statistics import PortStatistics, PresentNode
from hubbub.limits import ROUTES_NAMES_MAX, ROUTES_TOLD_MAX
from hubbub.message import Source


def node(number: int, names: int) -> PresentNode:
    source = Source(f"n{number}", bytes(12), 1)
    publishes = tuple(f"/{number}/{name}" for name in range(names))
    return PresentNode(source, "", 0, publishes, ("/...",))


def port(*nodes: PresentNode) -> PortStatistics:
    return PortStatistics(
        "a", Source("g", bytes(12), 1), True, nodes, ("/x",), ("/y",), 0, 0, 0, {}, ()
    )


def test_few_nodes_are_told_whole() -> None:
    told = _shorten(port(node(0, 3), node(1, 0)))
    assert (told.nodes, told.untold) == ((node(0, 3), node(1, 0)), 0)


def test_names_that_are_too_many_are_left_out_and_counted() -> None:
    told = _shorten(port(node(0, ROUTES_NAMES_MAX - 2), node(1, 10), node(2, 10)))
    kept = [len(one.publishes) + len(one.wants) for one in told.nodes]
    assert kept == [ROUTES_NAMES_MAX - 1, 1, 0]
    assert told.untold == 10 + 11


def test_nodes_that_are_too_many_are_left_out_and_counted() -> None:
    told = _shorten(port(*(node(number, 0) for number in range(ROUTES_TOLD_MAX + 5))))
    assert (len(told.nodes), told.untold) == (ROUTES_TOLD_MAX, 5)
