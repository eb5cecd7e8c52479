"""Planted bugs of links that somebody insists on."""

from typing import Any

from hubbub.protocol.branches import Branch
from hubbub.protocol.burst import Pipes
from hubbub.protocol.grants import Grants
from hubbub.protocol.incoming import Incoming
from hubbub.protocol.linkless import Linkless
from hubbub.protocol.peers import Peer
from hubbub.protocol.probing import Probing
from hubbub.protocol.receiver import Receiver
from hubbub.protocol.requests import Asks
from hubbub.protocol.topics import IncomingTopic, OutgoingTopic
from hubbub.protocol.ways import Ways
from hubbub.simulation.bugs import Method, bug
from hubbub.wire.control import Topic
from hubbub.wire.wishes import read_name


@bug(Ways, "link_to", "wishes")
def any_link_taken(sound: Method) -> Method:
    """Take what leads there, whether it is allowed or not."""

    def link_to(self: Ways, key: bytes, links: tuple[str, ...], *, is_heard: bool) -> str:
        every = (*links, "local", "tcp", "multicast")
        link: str = sound(self, key, every, is_heard=is_heard)
        return link

    return link_to


@bug(Grants, "way_to", "wishes", seed=9)
def repairs_by_any_link(sound: Method) -> Method:
    """Send again by the best link what must keep to others."""
    return lambda self, peer, stream: peer.reach


@bug(Ways, "choose", "wishes", 17)
def references_though_somebody_is_away(sound: Method) -> Method:
    """Refer to shared memory as soon as all whom a link leads to are on this host."""

    def choose(
        self: Ways, links: dict[bytes, str], behind: Any, addresses: Any = ()
    ) -> Pipes | None:
        reached = {key: link for key, link in links.items() if link}
        chosen: Pipes | None = sound(self, reached, behind, addresses)
        return chosen

    return choose


@bug(Branch, "_make_copy", "wishes_change")
def branch_begins_late(sound: Method) -> Method:
    """Number the messages of a branch from one behind the next on."""

    def make_copy(self: Branch) -> OutgoingTopic:
        copy: OutgoingTopic = sound(self)
        copy.next_sequence += 1
        return copy

    return make_copy


@bug(Grants, "_has_relative", "wishes", seed=10)
def node_counted_twice(sound: Method) -> Method:
    """Count a node once for each way in which it gets a topic."""

    def has_relative(peer: Peer, topic: OutgoingTopic) -> bool:
        return False

    return has_relative


@bug(Linkless, "_publishers", "wishes", seed=5)
def subscriber_not_told(sound: Method) -> Method:
    """Leave it to publishers to tell that no link is common."""
    return lambda self: iter(())


@bug(Receiver, "declare", "wishes_history", seed=12)
def granted_topic_taken_for_a_new_one(sound: Method) -> Method:
    """Expect no history of a topic that a link brings later, though the grant names one."""

    def declare(self: Receiver, declared: Topic, *, is_owed: bool = True, **_: bool) -> None:
        sound(self, declared, is_owed=is_owed)

    return declare


@bug(Asks, "match", "wishes_history", seed=1)
def history_asked_by_any_link(sound: Method) -> Method:
    """Take a request for one by any link, whatever its subscription insists on."""
    return lambda self, name: sound(self, (read_name(name) or ("", name))[1])


@bug(Ways, "note_unheard", "pulled_cable")
def group_taken_to_reach_this_host(sound: Method) -> Method:
    """Tell what is for all by the group alone, also where that is silent."""
    return lambda self, keys: None


@bug(Grants, "link_to", "group_falls_silent", seed=1)
def silent_group_still_used(sound: Method) -> Method:
    """Go on sending by a group from where nobody was heard for long."""

    def link_to(self: Grants, peer: Peer, links: tuple[str, ...]) -> str:
        is_heard = peer.grouped_ns is not None
        return self.endpoint.ways.link_to(peer.key, links, is_heard=is_heard)

    return link_to


@bug(Grants, "_find_addresses", "datagrams")
def datagram_to_one_of_many(sound: Method) -> Method:
    """Send a datagram to the first of several receivers, as to the only one."""

    def find_addresses(self: Grants, links: dict[bytes, str]) -> Any:
        route, straight = sound(self, links)
        is_many = route is not None and len(route.addresses) > 1
        return (None, route.addresses[0]) if is_many else (route, straight)

    return find_addresses


@bug(Incoming, "_link_of", "datagrams")
def datagram_taken_for_the_group(sound: Method) -> Method:
    """Name the group as the link of whatever came by UDP."""
    return lambda self, stream: self.endpoint.link


@bug(Receiver, "extend", "datagrams")
def best_effort_asked_for(sound: Method) -> Method:
    """Ask for missing frames whatever class they are of."""

    def extend(self: Receiver, now: int, next_sequence: int) -> None:
        first = self.next
        sound(self, now, next_sequence)
        if not self.is_reliable and next_sequence > first:
            self.requester.miss(now, first, next_sequence)

    return extend


@bug(IncomingTopic, "accept", "datagrams")
def hole_of_best_effort_not_counted(sound: Method) -> Method:
    """Go on behind a hole of best effort without counting it."""

    def accept(self: IncomingTopic, *run: Any) -> None:
        lost = self.lost
        sound(self, *run)
        self.lost = self.lost if self.is_reliable else lost

    return accept


@bug(Grants, "_takes_datagrams", "datagrams_fall_silent")
def silent_datagrams_still_used(sound: Method) -> Method:
    """Go on sending datagrams from where none was heard for long."""
    return lambda self, peer, *, is_heard: not isinstance(peer.address, Pipes)


@bug(Probing, "tell", "datagrams")
def datagrams_never_probed(sound: Method) -> Method:
    """Wait for the other side to send the first datagram."""
    return lambda self, peers: None
