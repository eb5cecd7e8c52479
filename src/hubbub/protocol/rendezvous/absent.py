"""What is kept for subscribers that stand still, until they go on or have been away for too long.

A process that gets no processor for seconds looks like a dead one: frames for it are given up, it
is struck off, and goes on as if nothing had happened. So what was on its way is kept, and what is
published after it was struck off, for one of the same life: it is sent as soon as that node is
heard again. A subscriber knows what it has had, so nothing comes twice.

Invariants: what is kept is bounded for each node, for all together, and in time; what is dropped
for one that comes back is told, never passed over.
"""

from collections import deque
from collections.abc import Callable

from hubbub.limits import (
    ABSENCE,
    ABSENT_BYTES_MAX,
    ABSENT_NODE_BYTES_MAX,
    HOP_TIMEOUT,
    SERVICE_LEASE,
)
from hubbub.protocol.rendezvous.hops import Done
from hubbub.protocol.rendezvous.post import Post, ignore
from hubbub.protocol.rendezvous.seat import NEVER, GivenUp
from hubbub.protocol.rendezvous.view import State
from hubbub.wire.header import HEADER_BYTES, KIND_OFFSET, SERVICE
from hubbub.wire.services import (
    ANYCAST,
    BATCH,
    ENVELOPE_BYTES,
    INFO,
    NOTHING,
    RETAIN,
    Extra,
    Request,
    decode_request,
)

_TYPE_AT = HEADER_BYTES + ENVELOPE_BYTES


class _Box:
    """What is kept for one node."""

    def __init__(self, life: int, until_ns: int) -> None:
        self.life = life  # 0: it was gone before we came, and counts in any.
        self.until_ns = until_ns
        self.again_ns = NEVER  # When to try again, without any sign.
        self.kept: deque[Request] = deque()
        self.size_bytes = 0
        self.lost = 0
        self.is_over = False  # It was away for too long.


class Absent:
    """The messages for those who may come back."""

    def __init__(self, post: Post, make_done: Callable[[Request], Done]) -> None:
        self.post = post
        self.seat = post.seat
        self.view = post.view
        self.boxes: dict[bytes, _Box] = {}
        self.due_ns = NEVER
        self.size_bytes = 0
        self._make_done = make_done

    def take_frame(self, now: int, node: bytes, frame: bytes) -> None:
        """Keep a frame that was given up, if it is a message for a subscriber."""
        info = _read_message(frame)
        if info is not None:
            self.keep(now, node, info)

    def keep(self, now: int, node: bytes, info: Request) -> None:
        """Keep a message for a node that does not answer."""
        member = self.view.members.get(node)
        if member is not None and member.state is State.LEFT:
            return
        if self.seat.is_leaving:
            self._entrust(now, [node], info)
            return
        box = self.boxes.get(node)
        life = 0 if member is None else member.life
        if box is None or life not in (0, box.life):
            self.drop(node)
            box = self.boxes[node] = _Box(life, now + ABSENCE)
            self.due_ns = min(self.due_ns, box.until_ns)
        # For whom else it was to be passed on, somebody else has done so.
        extra = Extra(subject=info.extra.subject) if info.extra.subject else NOTHING
        info = info._replace(flags=info.flags & (BATCH | RETAIN), hops=0, extra=extra)
        size_bytes = _size_bytes(info)
        is_full = (
            box.size_bytes + size_bytes > ABSENT_NODE_BYTES_MAX
            or self.size_bytes + size_bytes > ABSENT_BYTES_MAX
        )
        if box.is_over or is_full:
            box.lost += info.messages
            return
        box.kept.append(info)
        if (
            member is not None and member.state is State.ALIVE
        ):  # Nobody will say that it is back: it is there.
            box.again_ns = min(box.again_ns, now + HOP_TIMEOUT)
            self.due_ns = min(self.due_ns, box.again_ns)
        box.size_bytes += size_bytes
        self.size_bytes += size_bytes

    def heard(self, now: int, node: bytes, *, is_sign: bool = True) -> None:
        """Send what was kept for a node, which is there after all, or so it seems without a sign.

        What there is no room for now follows when it has acknowledged some. If it stands still
        again, that is another absence.
        """
        member, box = self.view.members.get(node), self.boxes.get(node)
        if box is None or member is None or not member.is_present:
            return
        if box.life not in (0, member.life):
            self.drop(node)  # It began anew, and knows nothing of what it had subscribed to.
            return
        if box.lost:
            self.seat.counters["given_up_absent"] += box.lost
            self.seat.events.append(GivenUp(node, box.lost))
            box.lost = 0
        box.again_ns = NEVER
        self._send(now, node, box)
        if is_sign and not box.kept:
            del self.boxes[node]
        elif is_sign:
            box.until_ns = now + ABSENCE

    def _send(self, now: int, node: bytes, box: _Box) -> None:
        """Send what was kept as far as there is room, and leave some of it to what is new."""
        while box.kept and self.post.hops.has_room_behind(node):
            info = box.kept.popleft()
            size_bytes = _size_bytes(info)
            box.size_bytes -= size_bytes
            self.size_bytes -= size_bytes
            self.seat.counters["sent_to_returned"] += 1
            self.post.send(now, node, info, self._make_done(info))

    def leave(self, now: int) -> None:
        """Give what is kept to those who come next: we go."""
        for node, box in list(self.boxes.items()):
            for info in box.kept:
                self._entrust(now, [node], info)
            self.drop(node)

    def entrust_frame(self, now: int, node: bytes, frame: bytes) -> None:
        """Let somebody else bring a message that a node has not acknowledged, to all it was for."""
        info = _read_message(frame)
        if info is not None:
            self._entrust(now, [node, *info.extra.nodes], info)

    def _entrust(self, now: int, nodes: list[bytes], info: Request) -> None:
        """Let the next manager pass a message on, as if it stood above those nodes in a tree."""
        successor = self.view.closest(info.message.key)
        if successor is not None and successor != nodes[0]:
            extra = Extra(nodes=nodes, subject=info.extra.subject)
            self.post.send(now, successor, info._replace(extra=extra), ignore)

    def drop(self, node: bytes) -> None:
        """Keep nothing more for a node: it has left, or begun anew."""
        box = self.boxes.pop(node, None)
        if box is not None:
            self.size_bytes -= box.size_bytes

    def advance(self, now: int) -> None:
        """Give up those who have been away for too long, and forget them after a lease."""
        if now < self.due_ns:
            return
        for node, box in list(self.boxes.items()):
            if box.again_ns <= now < box.until_ns:
                self.heard(now, node, is_sign=False)
            if box.until_ns > now:
                continue
            if box.is_over or not (box.kept or box.lost):
                self.drop(node)
                continue
            box.lost += sum(info.messages for info in box.kept)
            self.size_bytes -= box.size_bytes
            box.kept.clear()
            box.size_bytes, box.is_over, box.again_ns = 0, True, NEVER
            box.until_ns = now + SERVICE_LEASE
        times = (min(box.until_ns, box.again_ns) for box in self.boxes.values())
        self.due_ns = min(times, default=NEVER)


def _size_bytes(info: Request) -> int:
    return ENVELOPE_BYTES + len(info.message.rest)


def _read_message(frame: bytes) -> Request | None:
    """Return the message for a subscriber that is in a frame of ours; None: it is something else.

    Numbers that a peer drove beyond their bounds nobody can read; and of a request to any one the
    next member has heard meanwhile.
    """
    if frame[KIND_OFFSET] != SERVICE or frame[_TYPE_AT] != INFO:
        return None
    info = decode_request(frame[HEADER_BYTES:])
    return None if info is None or info.flags & ANYCAST else info
