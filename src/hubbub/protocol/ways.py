"""Which pipes lead to which node, and which way the frames of a stream take.

A pipe of this host is better than one to elsewhere (TCP), and both are better than the group where
they reach all receivers of a stream. Only where more than one of these is elsewhere does the group
cost less: it is sent once. But a node that is connected from afar need not hear the group, so what
goes there goes also by pipe to those who were not heard from there lately. What some get twice is
dropped by its sequence.
"""

from collections.abc import Collection

from hubbub.protocol.burst import NOWHERE, Address, ChosenPipes, FarPipes, GroupAndPipes, Pipes
from hubbub.protocol.delivery import DATAGRAM, LOCAL, MULTICAST, TCP
from hubbub.wire.wishes import Links


class Ways:
    """The pipes of one node on one channel."""

    def __init__(self) -> None:
        self.best: dict[bytes, Pipes] = {}  # By the key of the other end.
        self._spare: dict[bytes, FarPipes] = {}  # To nodes that have a better one.
        self.grouped: frozenset[bytes] = frozenset()  # Whom TCP reaches and the group, too.
        self.has_group = True  # Else everybody who has a pipe is the group; the shell sees to it.
        self.unheard: frozenset[bytes] = frozenset()  # Whom a pipe here reaches, not the group.
        self.everybody: GroupAndPipes | None = None  # Where goes what is for all; None: the group.

    def open(self, key: bytes, link: str, place: str) -> Pipes:
        """Enter a pipe; return the best one to that node."""
        pipe = Pipes((key,)) if link == LOCAL else FarPipes((key,))
        before = self.best.get(key)
        if isinstance(pipe, FarPipes):
            pipe.place = place
            if before is not None and before.is_near:
                self._spare[key] = pipe
                pipe = before
        elif isinstance(before, FarPipes):
            self._spare[key] = before
        self.best[key] = pipe
        self._changed()
        return pipe

    def close(self, key: bytes, link: str) -> Pipes | None:
        """Cross out a pipe; return the best one that is left."""
        pipe = self.best.get(key)
        if pipe is None or pipe.link != link:
            self._spare.pop(key, None)
            return pipe
        del self.best[key]
        if key in self._spare:
            self.best[key] = self._spare.pop(key)
        self._changed()
        return self.best.get(key)

    def bury(self, key: bytes) -> None:
        """Cross out all pipes to a node that has ended."""
        self._spare.pop(key, None)
        self.best.pop(key, None)
        self._changed()

    @property
    def far(self) -> list[bytes]:
        """Return the nodes that are reached by TCP."""
        return [key for key, pipe in self.best.items() if pipe.link == TCP]

    def host_of(self, key: bytes) -> str:
        """Return the address of the host that a connection by TCP leads to; empty: none does."""
        pipe = self._spare.get(key) or self.best.get(key)
        if not isinstance(pipe, FarPipes):
            return ""
        return pipe.place.rpartition(":")[0].strip("[]")

    def note_unheard(self, keys: frozenset[bytes]) -> None:
        """Let what is for all go also by pipes to these, whom the group may not reach."""
        if keys != self.unheard:
            self.unheard = keys
            self._changed()

    def _changed(self) -> None:
        keys = [*self.far, *sorted(self.unheard & self.best.keys())] if self.has_group else []
        self.everybody = GroupAndPipes(keys) if keys else None

    def link_to(self, key: bytes, links: Links, *, is_heard: bool) -> str:
        """Return the first of these links that leads to a node now; empty: none does.

        `is_heard` says that it was heard by the group lately. Who asks names datagram only where
        that leads there.
        """
        best = self.best.get(key)
        is_open = {
            LOCAL: best is not None and best.is_near,
            TCP: key in self._spare or (best is not None and not best.is_near),
            MULTICAST: self.has_group and is_heard,
            DATAGRAM: True,
        }
        return next((link for link in links if is_open.get(link)), "")

    def choose(
        self,
        links: dict[bytes, str],
        behind: Collection[bytes],
        addresses: Collection[Address] = (),
    ) -> Pipes | None:
        """Choose the way of new frames for receivers that are to be reached by these links.

        Those by datagrams have these addresses. None is the group. Who is behind is passed by, as
        ever.
        """
        near = [key for key, link in links.items() if link == LOCAL]
        far = [key for key, link in links.items() if link == TCP]
        has_group = MULTICAST in links.values()
        if has_group and not (near or far or addresses):
            return None
        ready = [key for key in near if key not in behind]
        if near and len(near) == len(links):
            # Only then may large payloads go by reference: whom no link leads to just now will ask
            # for them, and could not follow it.
            return Pipes(ready or near)
        near = ready if ready or far or has_group or addresses else near
        if not (near or far or has_group or addresses):
            return NOWHERE
        return ChosenPipes(near, far, has_group=has_group, addresses=addresses)

    def route(self, keys: list[bytes], behind: Collection[bytes]) -> Pipes | None:
        """Choose the way of new frames for these receivers; None: the group.

        Who is behind takes nothing for now, unless nobody else is there.
        """
        far = [key for key in keys if key in self.best and not self.best[key].is_near]
        unheard = [key for key in far if key not in self.grouped]
        is_piped = bool(keys) and all(key in self.best for key in keys)
        if is_piped and (len(far) <= 1 or len(unheard) == len(far) or not self.has_group):
            ready = [key for key in keys if key not in behind] or keys
            return FarPipes(ready) if far else Pipes(ready)
        return GroupAndPipes(unheard) if unheard and self.has_group else None
