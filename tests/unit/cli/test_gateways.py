"""Who is behind gateways, and by which way, from what gateways tell."""

from typing import Any

from hubbub import Source
from hubbub.cli.directory import list_topics
from hubbub.cli.gateways import FarNode, Gateways
from hubbub.gateway import GatewayStatistics, PortStatistics, PresentNode


def node(name: str, publishes: tuple[str, ...] = (), wants: tuple[str, ...] = ()) -> PresentNode:
    return PresentNode(Source(name, name.encode().ljust(12), 1), "host", 7, publishes, wants)


def port(gateway: str, lan: str, *others: str) -> PortStatistics:
    source = node(f"{gateway}@{lan}").source
    nodes = tuple(map(node, others))
    return PortStatistics(lan, source, True, nodes, (), (), 0, 0, 0, {}, ())


def gateway(name: str, *ports: PortStatistics, is_standby: bool = False) -> GatewayStatistics:
    return GatewayStatistics(name, name, ports, "", is_standby)


class Here:
    """A node that hears gateways only by what the test says."""

    class identity:  # noqa: N801
        source = node("me").source

    def subscribe(self, *_: Any, **__: Any) -> None:
        pass


def far(*told: GatewayStatistics) -> dict[str, str]:
    gateways = Gateways(Here())  # type: ignore[arg-type]
    gateways._heard = {one.id: one for one in told}
    found: list[FarNode] = gateways.far_nodes()
    return {one.node.source.name: " > ".join(one.path) for one in found}


NEAR = gateway("gw-1", port("gw-1", "a", "me", "desk"), port("gw-1", "b", "mill", "gw-2@b"))
NEXT = gateway("gw-2", port("gw-2", "b", "mill", "gw-1@b"), port("gw-2", "c", "crane"))


def test_nodes_behind_two_gateways_have_both_in_their_path() -> None:
    assert far(NEXT, NEAR) == {"mill": "gw-1", "crane": "gw-1 > gw-2"}


def test_gateway_that_stands_by_leads_nowhere() -> None:
    spare = gateway("gw-0", port("gw-0", "a", "me"), port("gw-0", "c", "crane"), is_standby=True)
    assert far(spare, NEAR, NEXT) == {"mill": "gw-1", "crane": "gw-1 > gw-2"}


def test_gateway_that_nothing_leads_to_is_passed_over() -> None:
    assert far(NEXT) == {}


def test_topics_of_nodes_behind_gateways_are_listed_with_the_way_there() -> None:
    mill = FarNode(node("mill", ("/mill/speed", "/log"), ("/crane/*",)), ("gw-1",))
    crane = FarNode(node("crane", ("/crane/load",), ("/mill/speed", "/mill/...")), ("gw-1", "gw-2"))
    topics = {one.subject: one for one in list_topics([], far=[mill, crane])}
    assert list(topics) == ["/crane/load", "/log", "/mill/speed"]
    assert topics["/crane/load"].far_publishers == [crane]
    assert topics["/crane/load"].far_subscribers == [mill]
    assert topics["/mill/speed"].far_subscribers == [crane], "once, by whichever pattern"
    (found,) = list_topics([], "/log", [mill, crane])
    assert (found.publishers, found.far_publishers, found.far_subscribers) == ([], [mill], [])
