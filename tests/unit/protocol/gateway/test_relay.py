"""Whole gateways between two LANs: who of them passes on, and who is taken for gone."""

from functools import partial

from hubbub.limits import BEACON_TIMEOUT, HOP_LIMIT, MS, TREE_JOIN, TREE_LISTEN
from hubbub.protocol.gateway.port import Port
from hubbub.protocol.gateway.relay import Relay
from hubbub.wire.gateways import Beacon
from hubbub.wire.header import BEACON
from tests.harness import Lan, lose_first


class Joined:
    """Two LANs, and gateways side by side between them that look around when it is time."""

    def __init__(self, gateways: int) -> None:
        self.lans = Lan(), Lan()
        self.relays = [self._open() for _ in range(gateways)]
        self.run(TREE_JOIN + TREE_LISTEN)

    def _open(self) -> Relay:
        nodes = [lan.add() for lan in self.lans]
        ports = [Port(str(place), node.core) for place, node in enumerate(nodes)]
        relay = Relay(0, ports, lambda port, function: function(self.lans[0].now))
        for place, node in enumerate(nodes):
            node.core.on_beacon = partial(relay.hear, place)
        return relay

    def run(self, time_ns: int) -> None:
        """Let time pass."""
        for _ in range(time_ns // TREE_LISTEN):
            for relay in self.relays:
                relay.look(self.lans[0].now)
            for lan in self.lans:
                lan.run(TREE_LISTEN)


def test_gateway_is_there_while_three_of_its_beacons_are_lost_in_a_row() -> None:
    joined = Joined(2)
    first, second = joined.relays
    assert second.tree.is_standby and not first.tree.is_standby
    for lan in joined.lans:
        lan.lose = lose_first(3, kind=BEACON, sender=lan.nodes[0])
    for _ in range(2 * BEACON_TIMEOUT // TREE_LISTEN):
        joined.run(TREE_LISTEN)
        assert second.tree.is_standby


def test_answer_to_who_listens_puts_off_no_beacon() -> None:
    joined = Joined(1)
    (relay,), (lan, _) = joined.relays, joined.lans
    due_ns, told = relay.beacon_ns, len(lan.sent_of(BEACON))
    relay.tree.hear(lan.now, 0, b"new", Beacon(bytes(12), HOP_LIMIT, bytes(12), 0, False, True))
    relay.look(due_ns - 1)
    lan.run(MS)
    assert len(lan.sent_of(BEACON)) == told + 1
    assert relay.beacon_ns == due_ns
