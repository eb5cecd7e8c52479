"""Direct messages between the ports of nodes."""

from collections.abc import Callable

from hubbub.errors import ConfigurationError
from hubbub.protocol.timetrigger.office import Office
from hubbub.protocol.timetrigger.passing import Letter, Numbers
from hubbub.wire.header import DIRECT
from hubbub.wire.timed import COMPONENT_PORT, Direct, decode_timed, encode_timed

Taker = Callable[[Letter | None], None]  # None: nothing more will come.


class Post:
    """The direct messages of one node."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._takers: dict[int, Taker] = {}  # By port.
        self._heard: dict[bytes, Numbers] = {}  # By peer.

    def listen(self, taker: Taker, port: int) -> None:
        """Let somebody hear the direct messages for a port, alone."""
        if port in self._takers:
            raise ConfigurationError(
                f"port={port}: somebody listens to it already; close that first, or take another"
            )
        self._takers[port] = taker

    def deafen(self, port: int, taker: Taker | None = None) -> None:
        """Let nobody hear them any more, or not this one; who did is told."""
        listening = self._takers.get(port)
        if listening is not None and taker in (None, listening):
            del self._takers[port]
            self._office.hand(listening, None)

    def is_heard(self, port: int) -> bool:
        """Tell whether somebody hears the direct messages for a port."""
        return port in self._takers

    def send(self, now: int, port: int, target: bytes, to: int, payload: bytes) -> bool:
        """Send a direct message to a port of a node; False: that node is not here."""
        office = self._office
        if target == office.node:
            received_ns = now + office.endpoint.wall_offset_ns
            return self._hand(to, Letter(office.endpoint.source, port, payload, received_ns))
        key = next((k for k in office.peers if k.startswith(target)), None)
        if key is None:
            return False
        body = encode_timed(Direct(office.node, port, to, target, 1, payload))
        office.send(now, office.peers[key].reach, DIRECT, body)
        return True

    def take(self, now: int, key: bytes, packet: int, body: bytes) -> bool:
        """Take a direct message from a peer, once; False: it is malformed."""
        direct, office = decode_timed(Direct, body), self._office
        if direct is None:
            return False
        if direct.destination < COMPONENT_PORT:
            office.tally.refused_port += 1
        elif direct.target != office.node or not direct.hops:
            office.tally.refused_hops += 1
        elif not self._heard.setdefault(key, Numbers()).is_new(packet):
            office.tally.duplicates += 1
        else:
            source = office.source_of(direct.node)
            received_ns = now + office.endpoint.wall_offset_ns
            letter = Letter(source, direct.port, direct.payload, received_ns)
            if not self._hand(direct.destination, letter):
                office.tally.unwanted += 1
        return True

    def forget(self, key: bytes) -> None:
        """Let go of a peer that has left."""
        self._heard.pop(key, None)

    def _hand(self, port: int, letter: Letter) -> bool:
        taker = self._takers.get(port)
        if taker is not None:
            self._office.tally.handed += 1
            self._office.hand(taker, letter)
        return taker is not None
