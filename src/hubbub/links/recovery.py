"""The interfaces of a link over time: appearing, going down, coming back with another address.

A membership survives an interface that goes down and up again, but the switches may have forgotten
us, so we join again (they hear it unless another process of this host is in the group, too; then
their next query finds us). Sockets are opened anew only if the address or the index is another one;
the port stays the same if possible, because peers answer to it. What cannot be mended now is tried
again at the next look: an IPv6 address, for instance, is not usable for a second after it appeared.

A machine that boots may start us before its network. Who asked for the LAN, and found none, is on
the loopback until there is one; who asked for all interfaces joins each one that comes.
"""

import socket

from hubbub.events import Event, LinkDown, LinkUp
from hubbub.links.interfaces import (
    ALL,
    Interface,
    InterfaceWatch,
    choose,
    choose_lans,
    interfaces,
)
from hubbub.links.socket_pair import Endpoint, SocketPair
from hubbub.protocol.burst import Address


class Recovery:
    """Open a link's pairs and keep them usable."""

    def __init__(self, endpoint: Endpoint, channel: str, wanted: str | None) -> None:
        chosen = choose(wanted)
        self._endpoint = endpoint
        self._channel = channel
        self._wanted = wanted
        # Who asked for all, or for the LAN when there was none, gets what comes later, too.
        self.is_growing = wanted == ALL or (wanted is None and chosen[0].is_loopback)
        self._watch = InterfaceWatch()
        self._must_look = True
        self._earlier_drops = 0
        self.pairs: list[SocketPair] = []
        self.own_addresses: frozenset[Address] = frozenset()
        try:
            self._open_all(chosen)
        except BaseException:
            self.close()
            raise
        self._drop_own_frames()

    def poll(self) -> list[Event]:
        """Look at the interfaces if something may have changed, and mend what can be mended."""
        is_ailing = any(one.send_error or one.down_reason for one in self.pairs)
        if not (self._watch.has_changed() or is_ailing or self._must_look):
            return []
        self._must_look = False
        known = {interface.name: interface for interface in interfaces()}
        events: list[Event] = []
        for place, pair in enumerate(self.pairs):
            events += self._look_at(place, pair, known.get(pair.interface.name))
        return events + self._grow(list(known.values())) if self.is_growing else events

    def _grow(self, known: list[Interface]) -> list[Event]:
        """Join on interfaces that have come up since; one that is not ready yet is tried again."""
        events: list[Event] = []
        there = {pair.interface.name for pair in self.pairs}
        for interface in choose_lans(self._wanted, known):
            if interface.name in there or not self._addresses(interface):
                continue
            try:
                pair = SocketPair(self._endpoint, interface)
            except OSError:
                self._must_look = True
                continue
            if self.pairs[0].interface.is_loopback:  # The LAN takes its place.
                self._replace(0, pair)
                self.is_growing = self._wanted == ALL
            else:
                self.pairs.append(pair)
                self._drop_own_frames()
            events.append(LinkUp(self._channel, interface.name))
        return events

    def kernel_drops(self) -> int:
        """What the kernel dropped, also on sockets that have been replaced."""
        return self._earlier_drops + sum(one.kernel_drops() for one in self.pairs)

    def close(self) -> None:
        """Close everything."""
        for pair in self.pairs:
            pair.close()
        self._watch.close()

    def _open_all(self, chosen: list[Interface]) -> None:
        """Open what has an address of the group's family; a single interface must have one."""
        usable = [one for one in chosen if self._addresses(one)] or chosen[:1]
        for interface in usable:
            self.pairs.append(SocketPair(self._endpoint, interface))

    def _look_at(self, place: int, pair: SocketPair, interface: Interface | None) -> list[Event]:
        trouble = self._interface_trouble(interface)
        if trouble or interface is None:
            pair.is_interface_down = True
            return self._went_down(pair, trouble)
        has_moved = interface.index != pair.interface.index or (
            pair.host not in interface.addresses
        )
        # An interface that is back explains the errors it caused; only other ones count.
        if pair.send_error and not (has_moved or pair.is_interface_down):
            return self._went_down(pair, f"cannot send: {pair.send_error}")
        if not (pair.down_reason or has_moved):
            pair.interface = interface
            return []
        events = self._went_down(pair, "its address has changed")
        try:
            self._restore(place, pair, interface, has_moved)
        except OSError as error:
            pair.down_reason = str(error)
            return events
        return [*events, LinkUp(self._channel, interface.name)]

    def _interface_trouble(self, interface: Interface | None) -> str:
        if interface is None:
            return "the interface is gone"
        if not interface.is_up:
            return "the interface is down"
        if not self._addresses(interface):
            return f"the interface has no address for group {self._endpoint.group}"
        return ""

    def _went_down(self, pair: SocketPair, reason: str) -> list[Event]:
        """Report the first reason only; what follows from it is no news."""
        if pair.down_reason:
            return []
        pair.down_reason = reason
        return [LinkDown(self._channel, pair.interface.name, reason)]

    def _restore(self, place: int, pair: SocketPair, interface: Interface, has_moved: bool) -> None:
        if not has_moved:
            pair.rejoin()
            pair.interface = interface
            pair.is_interface_down = False
            pair.send_error = pair.down_reason = ""
            return
        # The new sockets are opened before the old ones are closed, so their descriptors differ and
        # a poller cannot take one for the other.
        self._replace(place, SocketPair(self._endpoint, interface, pair.address[1]))

    def _replace(self, place: int, pair: SocketPair) -> None:
        before, self.pairs[place] = self.pairs[place], pair
        self._earlier_drops += before.kernel_drops()
        before.close()
        self._drop_own_frames()

    def _drop_own_frames(self) -> None:
        own = [pair.address for pair in self.pairs]
        self.own_addresses = frozenset(own)
        for pair in self.pairs:
            pair.drop_frames_of(own)

    def _addresses(self, interface: Interface) -> tuple[str, ...]:
        return interface.ipv6 if self._endpoint.family == socket.AF_INET6 else interface.ipv4
