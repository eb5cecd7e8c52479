"""Planted bugs of gateways."""

from typing import Any

from hubbub.message import Source
from hubbub.protocol.gateway.port import Passed, Port
from hubbub.protocol.gateway.relayed import Place, Places
from hubbub.protocol.gateway.tree import Tree
from hubbub.protocol.gateway.waiting import Kept, Run, Waiting
from hubbub.protocol.incoming import Incoming
from hubbub.protocol.topics import IncomingTopic, OutgoingTopic
from hubbub.simulation.bugs import Method, bug
from hubbub.wire.control import Topic


@bug(OutgoingTopic, "declare", "gateway")
def origin_not_told(sound: Method) -> Method:
    """Pass messages on as those of the gateway."""

    def declare(self: OutgoingTopic, stream: int, first: int) -> Topic:
        hops, self.hops = self.hops, 0
        declared: Topic = sound(self, stream, first)
        self.hops = hops
        return declared

    return declare


@bug(Port, "_begin", "gateway_restarts", seed=3)
def sequences_begin_anew(sound: Method) -> Method:
    """Number messages from 1 on, as topics of our own."""

    def begin(self: Port, now: int, origin: IncomingTopic, subject: str, first: int) -> Passed:
        passed: Passed = sound(self, now, origin, subject, 1)
        passed.next = first
        return passed

    return begin


@bug(Places, "find", "gateway_restarts", seed=10)
def place_of_each_gateway_apart(sound: Method) -> Method:
    """Forget how far we were when another gateway takes over."""
    return lambda self, origin, subject: Place()


@bug(Port, "ask", "gateway_interest")
def everything_asked_for(sound: Method) -> Method:
    """Ask for all that is published, and leave it to the other side whether it is wanted."""

    def ask(self: Port, now: int, patterns: frozenset[str], marked: frozenset[str]) -> None:
        sound(self, now, frozenset({"/..."}) if patterns else patterns, marked)

    return ask


@bug(Port, "ask", "gateway_interest")
def interest_never_withdrawn(sound: Method) -> Method:
    """Want for ever what somebody wanted once."""

    def ask(self: Port, now: int, patterns: frozenset[str], marked: frozenset[str]) -> None:
        sound(self, now, patterns | self.asked, marked)

    return ask


@bug(Port, "_pass_on", "gateway_restarts", seed=40)
def hole_closed_up(sound: Method) -> Method:
    """Go on with the next sequence where messages are missing."""

    def pass_on(self: Port, now: int, run: Run) -> bool:
        source: Source = run.delivery.topic.source
        for (key, subject), passed in self.passed.items():
            if key[:12] == source.id and subject == run.subject:
                run = run._replace(delivery=run.delivery._replace(first=passed.next))
        return bool(sound(self, now, run))

    return pass_on


@bug(Waiting, "put", "gateway_urgent")
def urgent_stands_in_line(sound: Method) -> Method:
    """Pass on in the order in which it came, whatever it is."""

    def put(self: Waiting, run: Run) -> None:
        self._runs.append(run)
        self.size_bytes += run.size_bytes

    return put


@bug(Port, "_is_deep", "gateway_urgent")
def urgent_overtakes_too_late(sound: Method) -> Method:
    """Give the stream all that there is: nothing overtakes what waits there."""
    return lambda self: False


@bug(Incoming, "crowd", "gateway_slow", seed=6)
def room_never_made_again(sound: Method) -> Method:
    """Take in no more when a side is behind, and leave it at that."""

    def crowd(self: Incoming, now: int, peers: list[Any], *, is_crowded: bool) -> None:
        sound(self, now, peers, is_crowded=is_crowded or self.is_crowded)

    return crowd


@bug(Port, "sweep", "gateway_origins")
def origins_never_forgotten(sound: Method) -> Method:
    """Keep the topics of everybody who was ever there."""
    return lambda self, now, heard: None


@bug(Tree, "settle", "gateway_ring", seed=11)
def all_ports_open(sound: Method) -> Method:
    """Pass on everywhere, however many others do."""

    def settle(self: Tree, now: int, is_present: Any) -> bool:
        before = list(self.is_open)
        sound(self, now, is_present)
        self.is_open = [True] * len(self.is_open)
        return before != self.is_open

    return settle


@bug(Tree, "settle", "gateway_parallel", seed=6)
def dead_gateways_believed(sound: Method) -> Method:
    """Take what a gateway said once for true for ever."""

    def settle(self: Tree, now: int, is_present: Any) -> bool:
        for heard in self.heard:
            for key, one in heard.items():
                heard[key] = one._replace(heard_ns=now)
        return bool(sound(self, now, lambda port, key: True))

    return settle


@bug(Tree, "settle", "gateway_returns", seed=10)
def newcomer_takes_over_at_once(sound: Method) -> Method:
    """Pass on from the first moment, before anything was heard that would have to be."""

    def settle(self: Tree, now: int, is_present: Any) -> bool:
        self.is_listening = False
        return bool(sound(self, now, is_present))

    return settle


@bug(Kept, "put", "gateway_parallel", seed=6)
def nothing_kept_for_a_failure(sound: Method) -> Method:
    """Stand by without remembering anything."""
    return lambda self, run: None


@bug(Tree, "standing_by", "gateway_returns", seed=16)
def nothing_in_reserve(sound: Method) -> Method:
    """Keep nothing for who stands by: in a ring what only one LAN wants is lost with a gateway."""
    return lambda self, port: set()


@bug(Port, "ask", "gateway_ring")
def reserve_taken_for_real(sound: Method) -> Method:
    """Ask for what is to be kept in reserve as if somebody wanted it."""

    def ask(self: Port, now: int, patterns: frozenset[str], marked: frozenset[str]) -> None:
        sound(self, now, patterns, frozenset())

    return ask
