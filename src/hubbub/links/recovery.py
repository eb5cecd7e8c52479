"""The interfaces of a link over time: going down, coming back, perhaps with another address.

A membership survives an interface that goes down and up again, but the switches may have forgotten
us, so we join again. Sockets are opened anew only if the address or the index is another one; the
port stays the same if possible, because peers answer to it. What cannot be mended now is tried
again at the next look: an IPv6 address, for instance, is not usable for a second after it appeared.
"""

import socket

from hubbub.events import Event, LinkDown, LinkUp
from hubbub.links.attachment import Attachment, Endpoint
from hubbub.links.interfaces import Interface, InterfaceWatch, interfaces
from hubbub.protocol.burst import Address


class Recovery:
    """Open a link's attachments and keep them usable."""

    def __init__(self, endpoint: Endpoint, channel: str, chosen: list[Interface]) -> None:
        self._endpoint = endpoint
        self._channel = channel
        self._watch = InterfaceWatch()
        self._must_look = True
        self._earlier_drops = 0
        self.attachments: list[Attachment] = []
        self.own_addresses: frozenset[Address] = frozenset()
        try:
            self._open_all(chosen)
        except BaseException:
            self.close()
            raise
        self._drop_own_frames()

    def poll(self) -> list[Event]:
        """Look at the interfaces if something may have changed, and mend what can be mended."""
        is_ailing = any(one.send_error or one.down_reason for one in self.attachments)
        if not (self._watch.has_changed() or is_ailing or self._must_look):
            return []
        self._must_look = False
        known = {interface.name: interface for interface in interfaces()}
        events: list[Event] = []
        for place, attachment in enumerate(self.attachments):
            events += self._look_at(place, attachment, known.get(attachment.interface.name))
        return events

    def kernel_drops(self) -> int:
        """What the kernel dropped, also on sockets that have been replaced."""
        return self._earlier_drops + sum(one.kernel_drops() for one in self.attachments)

    def close(self) -> None:
        """Close everything."""
        for attachment in self.attachments:
            attachment.close()
        self._watch.close()

    def _open_all(self, chosen: list[Interface]) -> None:
        """Open what has an address of the group's family; a single interface must have one."""
        usable = [one for one in chosen if self._addresses(one)] or chosen[:1]
        for interface in usable:
            self.attachments.append(Attachment(self._endpoint, interface))

    def _look_at(
        self, place: int, attachment: Attachment, interface: Interface | None
    ) -> list[Event]:
        trouble = self._interface_trouble(interface)
        if trouble or interface is None:
            attachment.is_interface_down = True
            return self._went_down(attachment, trouble)
        has_moved = interface.index != attachment.interface.index or (
            attachment.host not in interface.addresses
        )
        # An interface that is back explains the errors it caused; only other ones count.
        if attachment.send_error and not (has_moved or attachment.is_interface_down):
            return self._went_down(attachment, f"cannot send: {attachment.send_error}")
        if not (attachment.down_reason or has_moved):
            attachment.interface = interface
            return []
        events = self._went_down(attachment, "its address has changed")
        try:
            self._restore(place, attachment, interface, has_moved)
        except OSError as error:
            attachment.down_reason = str(error)
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

    def _went_down(self, attachment: Attachment, reason: str) -> list[Event]:
        """Report the first reason only; what follows from it is no news."""
        if attachment.down_reason:
            return []
        attachment.down_reason = reason
        return [LinkDown(self._channel, attachment.interface.name, reason)]

    def _restore(
        self, place: int, attachment: Attachment, interface: Interface, has_moved: bool
    ) -> None:
        if not has_moved:
            attachment.rejoin()
            attachment.interface = interface
            attachment.is_interface_down = False
            attachment.send_error = attachment.down_reason = ""
            return
        # The new sockets are opened before the old ones are closed, so their descriptors differ and
        # a poller cannot take one for the other.
        self.attachments[place] = Attachment(self._endpoint, interface, attachment.address[1])
        self._earlier_drops += attachment.kernel_drops()
        attachment.close()
        self._drop_own_frames()

    def _drop_own_frames(self) -> None:
        own = [attachment.address for attachment in self.attachments]
        self.own_addresses = frozenset(own)
        for attachment in self.attachments:
            attachment.drop_frames_of(own)

    def _addresses(self, interface: Interface) -> tuple[str, ...]:
        return interface.ipv6 if self._endpoint.family == socket.AF_INET6 else interface.ipv4
