"""Which ports of gateways pass on, so that between any two networks there is one way.

Gateways may close a ring, or stand side by side. As bridges do it (IEEE 802.1D), they agree on a
tree: the gateway of the smallest id is the root, each tells on all its networks how far it is from
the root, and on each network only the closest passes on; a port that is neither that nor the way to
the root is closed. So neither messages nor interests can go in a circle for ever.

A gateway that is new listens before it takes part. What it tells meanwhile counts for nothing, so
that those who pass on go on; then it takes over with what it has heard, and nothing is lost.

What is heard lasts while it is repeated. A root that is gone lives on in what others tell of it;
each passing makes it farther away, and at HOP_LIMIT nobody believes it. So that they need not count
up to there, with ports that open and close at each step, who has lost its way and hears of a longer
one waits, as routers do (hold-down): it tells that it has none, goes on as before, and those whose
way led over it do the same. What is still told after TREE_HOLD is a way. Until all agree there may
be a circle: then messages come twice, which receivers see by the sequence.

Why not the shortest way for each origin: a table of origins and a hand-over for each of them.
"""

from collections.abc import Callable, Container, Iterator
from typing import NamedTuple

from hubbub.limits import BEACON_TIMEOUT, HOP_LIMIT, TREE_ALONE, TREE_HOLD, TREE_JOIN
from hubbub.wire.gateways import Beacon


class Vector(NamedTuple):
    """How good a way is; of two the smaller is better."""

    root: bytes
    distance: int
    gateway: bytes
    port: int


class Heard(NamedTuple):
    """What another gateway told, and when."""

    beacon: Beacon
    heard_ns: int

    @property
    def vector(self) -> Vector:
        """Return how good it is."""
        one = self.beacon
        return Vector(one.root, one.distance, one.gateway, one.port)


class Tree:
    """The place of one gateway among all."""

    def __init__(self, gateway: bytes, ports: int, now: int) -> None:
        self.gateway = gateway
        self.root = gateway
        self.distance = 0
        self.is_open = [False] * ports
        self.heard: list[dict[bytes, Heard]] = [{} for _ in range(ports)]  # By key of the node.
        # What they told last who told nothing more: what they wanted is no wish now either.
        self.silent: list[dict[bytes, Beacon]] = [{} for _ in range(ports)]
        self.is_listening = True  # And takes no part yet.
        self.held_ns: int | None = None  # Until then a longer way to our root is not believed.
        self._join_ns = now + TREE_ALONE
        self._begin_ns = now
        self._is_asked = False  # Somebody listens, and may not know us yet.

    def hear(self, now: int, port: int, key: bytes, beacon: Beacon) -> None:
        """Take what another gateway tells on the network of a port."""
        self.heard[port][key] = Heard(beacon, now)
        self.silent[port].pop(key, None)
        self._is_asked = self._is_asked or beacon.distance >= HOP_LIMIT

    def forget(self, port: int, known: Container[bytes]) -> None:
        """Forget what those told whom nobody on the network of a port remembers."""
        silent = self.silent[port]
        for key in [key for key in silent if key not in known]:
            del silent[key]

    def settle(self, now: int, is_present: Callable[[int, bytes], bool]) -> bool:
        """Forget who is gone, and look which ports pass on; True: others must hear of it."""
        for port, heard in enumerate(self.heard):
            for key in list(heard):
                if now - heard[key].heard_ns > BEACON_TIMEOUT or not is_present(port, key):
                    self.silent[port][key] = heard.pop(key).beacon
        before = self.root, self.distance, list(self.is_open), self.is_listening, self.is_held
        best = [self._best(port) for port in range(len(self.heard))]
        if self._is_joined_already(best):
            self._join_ns = self._begin_ns + TREE_JOIN
        elif any(best):  # Those on our other networks may take longer to be heard.
            self._join_ns = max(self._join_ns, self._begin_ns + 2 * TREE_ALONE)
        self.is_listening = self.is_listening and now < self._join_ns
        self._choose(now, best)
        is_mute = self.is_listening or self.is_held
        is_asked, self._is_asked = self._is_asked and not is_mute, False
        after = self.root, self.distance, self.is_open, self.is_listening, self.is_held
        return is_asked or before != after

    @property
    def is_held(self) -> bool:
        """Tell whether the way to the root is lost, and which one is left is not known yet."""
        return self.held_ns is not None

    def _choose(self, now: int, best: list[Vector | None]) -> None:
        """Take the best way there is, and look which ports pass on then."""
        root, distance, root_port = self._find_way(best)
        if self._must_wait(now, root, distance):
            return
        self.root, self.distance = root, distance
        for port, other in enumerate(best):
            offer = Vector(root, distance, self.gateway, port)
            is_best = other is None or offer < other
            self.is_open[port] = not self.is_listening and (is_best or port == root_port)

    def _must_wait(self, now: int, root: bytes, distance: int) -> bool:
        """Tell whether a way may be one that leads over ourselves, and begin or end to wait."""
        everybody = (one.beacon for heard in self.heard for one in heard.values())
        is_doubtful = (
            not self.is_listening
            and (root, distance) > (self.root, self.distance)
            and any(one.root == self.root for one in everybody)
        )
        self.held_ns = (self.held_ns or now + TREE_HOLD) if is_doubtful else None
        if self.held_ns is not None and now >= self.held_ns:
            self.held_ns = None
        return self.held_ns is not None

    def _is_joined_already(self, best: list[Vector | None]) -> bool:
        """Tell whether another way joins our networks, or somebody stands by to do so."""
        roots = [vector.root for vector in best if vector is not None]
        everybody = (one.beacon for heard in self.heard for one in heard.values())
        return len(set(roots)) < len(roots) or any(
            one.is_standby and one.distance < HOP_LIMIT for one in everybody
        )

    def _best(self, port: int) -> Vector | None:
        vectors = [one.vector for one in self.heard[port].values()]
        return min((one for one in vectors if one.distance < HOP_LIMIT), default=None)

    def _find_way(self, best: list[Vector | None]) -> tuple[bytes, int, int | None]:
        """Return the root, how far it is, and the port that leads there; None: we are it."""
        ways = [(vector, port) for port, vector in enumerate(best) if vector is not None]
        if not ways or min(ways)[0].root >= self.gateway:
            return self.gateway, 0, None
        vector, port = min(ways)
        return vector.root, vector.distance + 1, port

    @property
    def is_standby(self) -> bool:
        """Tell whether this gateway joins no networks now, and knows which ones it would."""
        return len(self.is_open) == 2 and not all(self.is_open)

    def beacon(self, port: int) -> Beacon:
        """Return what to tell on the network of a port."""
        distance = HOP_LIMIT if self.is_listening or self.is_held else self.distance
        is_open = self.is_open[port]
        return Beacon(self.root, distance, self.gateway, port, is_open, self.is_standby)

    def ignored(self, port: int) -> set[bytes]:
        """Return the gateways whose wishes on the network of a port count for nothing.

        They only stand by; or, where we do, they are the ones that we stand by for.
        """
        others = {
            one.beacon.gateway
            for place, heard in enumerate(self.heard)
            if place != port
            for one in heard.values()
        }
        return {
            key
            for key, beacon in self._told(port)
            if beacon.is_standby
            or beacon.gateway == self.gateway
            or (self.is_standby and beacon.gateway in others)
        }

    def _told(self, port: int) -> Iterator[tuple[bytes, Beacon]]:
        """Name all gateways on the network of a port, and what they told last."""
        yield from ((key, one.beacon) for key, one in self.heard[port].items())
        yield from self.silent[port].items()

    def standing_by(self, port: int) -> set[bytes]:
        """Return the gateways on the network of a port for which we keep what they would need.

        Who stands by itself does not: it would keep in reserve what others want in reserve.
        """
        if self.is_standby:
            return set()
        return {
            key
            for key, beacon in self._told(port)
            if beacon.is_standby and beacon.gateway != self.gateway
        }
