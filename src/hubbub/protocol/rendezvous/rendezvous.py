"""The services of one node: all that shells and the simulator see.

Inputs are datagrams, calls of the application and the clock; outputs are datagrams, deliveries and
what became of requests, fetched by the shell. Nothing here raises because of what a peer sent: it
is counted in `drops`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

import msgspec

from hubbub.limits import (
    ACK_BYTES,
    ACK_DELAY,
    ANSWERS_PER_FRAME,
    BATCH_BYTES,
    BATCH_QUIET,
    CROWDED_LOOK,
    LEAVE_PATIENCE,
    PUBLISH_PATIENCE,
    PUBLISHES_PER_ANSWER,
    SINGLES_HELD_MAX,
    SINGLES_PER_ANSWER,
)
from hubbub.protocol.rendezvous.asking import Asking
from hubbub.protocol.rendezvous.client import NO_ORDER, Client, Subscribed
from hubbub.protocol.rendezvous.express import Express, Passage
from hubbub.protocol.rendezvous.first_version import FirstVersion
from hubbub.protocol.rendezvous.group import Ear, Group
from hubbub.protocol.rendezvous.hops import Hops
from hubbub.protocol.rendezvous.looking import Looking
from hubbub.protocol.rendezvous.manager import Manager
from hubbub.protocol.rendezvous.placement import Placement, XorPlacement
from hubbub.protocol.rendezvous.post import Post
from hubbub.protocol.rendezvous.profile import FAST, Profile
from hubbub.protocol.rendezvous.publishing import Lane, Publishing
from hubbub.protocol.rendezvous.roles import Role
from hubbub.protocol.rendezvous.seat import (
    NEVER,
    MemberNews,
    Place,
    Policy,
    Seat,
    allow_everything,
)
from hubbub.protocol.rendezvous.single import Single
from hubbub.protocol.rendezvous.swim import Swim, first_incarnation
from hubbub.protocol.rendezvous.view import Member, News, View
from hubbub.wire.header import (
    ANSWER,
    HEADER_BYTES,
    MAGIC,
    MAJOR,
    MEMBERS,
    NOTICE,
    SEALED,
    SERVICE,
    decode,
    is_intact,
    split_key,
)
from hubbub.wire.services import (
    ANYCAST,
    BARE_BYTES_MAX,
    BATCH,
    CHANGE_SERVICE_MANAGER,
    INFO,
    LEAVING,
    PASSED,
    PROMPT,
    PUBLISH,
    TAKEN,
    Answer,
    Copy,
    Inquiry,
    Inventory,
    Kept,
    Known,
    ListTaken,
    Notice,
    Query,
    Record,
    Reply,
    Request,
    Result,
    decode_answers,
    decode_members,
    decode_message,
    decode_notice,
    decode_request,
    encode_answers,
    service_key,
    split_ids,
)

MakeView = Callable[[Seat, Placement, int, int], View]


@dataclass(frozen=True, slots=True)
class Options:
    """How a node takes part in services; placement and profile are the same for all of a bus."""

    profile: Profile = FAST
    placement: Placement = field(default_factory=XorPlacement)
    weight: int = 1
    policy: Policy = allow_everything
    is_guest: bool = False  # Looks on, and manages nothing.
    batch_bytes: int = BATCH_BYTES  # Of messages that go in one frame.
    is_first_version: bool = False  # Sends bare messages, where they say it all.


class Rendezvous:
    """One node among those that share services."""

    def __init__(
        self, now: int, node: bytes, life: int, domain: int, random: Random, *,
        seeds: list[Place], options: Options | None = None, wall_offset_ns: int = 0,
        is_expecting: bool = False, make_view: MakeView = View, group: Place | None = None,
    ) -> None:  # fmt: skip
        options = options or Options()
        self.seat = Seat(node, life, domain, random, now)
        self.seat.wall_offset_ns = wall_offset_ns
        self.seat.policy = options.policy
        self.seat.is_guest = options.is_guest
        self.seat.is_first_version = options.is_first_version
        self.options = options
        profile = options.profile
        self.view = make_view(self.seat, options.placement, profile.stable_ns, options.weight)
        incarnation = first_incarnation(now, wall_offset_ns)
        self.swim = Swim(self.seat, self.view, profile, seeds, incarnation)
        self.hops = Hops(self.seat, self.swim.suspect, self._lose)
        self.group = Group(self.seat, self.hops, group)
        self.post = Post(self.seat, self.view, self.hops, self.group)
        self.manager = Manager(self.post)
        asking = Asking(self.post, self.manager, is_expecting=is_expecting or bool(seeds))
        patience_ns = max(PUBLISH_PATIENCE, 2 * profile.detection_ns)
        self.publishing = Publishing(asking, patience_ns, options.batch_bytes)
        self.single = Single(self.publishing, self.hops, self.view)
        self.client = Client(asking, self.publishing)
        self.manager.own = self.client
        self.express = Express(self.manager, self.client)
        self.first_version = FirstVersion(self.manager, self.client, self.swim, self._follow)
        self.ear = Ear(self.seat, self.view, self.client.subscribed)
        self.looking = Looking(self.manager, self.client)
        self.is_closed = False
        self._stall_ns = profile.suspicion_ns
        self._woke_ns = now  # When time was last looked at, which is each round of pings.
        self._leave_ns = NEVER
        self._has_entrusted = False
        self._answers: dict[Place, list[Answer]] = {}
        self._hints: dict[Place, set[bytes]] = {}
        self._acks: dict[Place, list[Answer]] = {}  # Of messages, which may wait for each other.
        self.passed: list[tuple[int, Place, Passage]] = []  # Not answered yet.
        self._acks_count = 0
        self._acks_bytes = 0
        self._acks_ns = NEVER
        self._hurrying: set[Place] = set()  # Those whose messages wait for each other.
        self._late: deque[tuple[Place, Answer]] = deque()  # Until those behind have caught up.

    # What the shell drains.

    @property
    def out(self) -> deque[tuple[Place, bytes]]:
        """Return the datagrams to send; the shell empties it, after `flush`."""
        return self.seat.out

    def flush(self) -> None:
        """Make frames of the answers that were given since the last time.

        The shell sends what is there already before that: a message does not wait for answers.
        """
        if self.passed:
            self._answer_passed()
        is_many = self._acks_count >= ANSWERS_PER_FRAME or self._acks_bytes >= ACK_BYTES
        is_due = is_many or self.seat.now >= self._acks_ns
        if not (is_due or self._answers or self._late):
            return
        if is_due:
            for place, acks in self._acks.items():
                self._answers.setdefault(place, []).extend(acks)
            self._acks, self._acks_count, self._acks_bytes, self._acks_ns = {}, 0, 0, NEVER
            self._hurrying.clear()
        while self._late and not self.hops.is_crowded(self.seat.now):
            self._answer(*self._late.popleft())
        for place, answers in self._answers.items():
            nodes = sorted(self._hints.get(place, ()))
            members = [self.view.members[node] for node in nodes if node in self.view.members]
            hints: list[Record] = [member.record() for member in members][:4]
            for at in range(0, len(answers), ANSWERS_PER_FRAME):
                body = encode_answers(answers[at : at + ANSWERS_PER_FRAME], hints if not at else [])
                self.seat.send(place, ANSWER, body)
        self._answers.clear()
        self._hints.clear()

    def held_until(self, now: int) -> int:
        """Return until when the shell may leave the answers to single messages to a later `flush`.

        That is when the first of them is due in any case. Not if messages come so fast that their
        publishers may wait for answers.
        """
        passed = self.passed
        count = len(passed)
        if count >= SINGLES_HELD_MAX or self._hurrying or not count:
            return now
        if count >= SINGLES_PER_ANSWER:
            lately_ns = now - SINGLES_PER_ANSWER * BATCH_QUIET
            if passed[-SINGLES_PER_ANSWER][0] > lately_ns:
                return now
        return passed[0][0] + ACK_DELAY

    def _answer_passed(self) -> None:
        """Give the answers to what went the short way, as of when it came."""
        for now, place, (answer, type, flags, size_bytes) in self.passed:
            if type == INFO:
                self._acknowledge_info(now, place, answer, size_bytes)
            else:
                self._answer_publish(now, place, answer, flags, size_bytes)
        self.passed.clear()

    def deadline(self) -> int:
        """Return when `advance` must be called, after `flush`."""
        late_ns = self.seat.now + CROWDED_LOOK if self._late else NEVER
        due_ns = min(
            self.swim.due_ns, self.hops.due_ns, self.client.due_ns, self._leave_ns, self._acks_ns,
            self.publishing.due_ns, self.manager.everywhere.due_ns, self.manager.due_ns, late_ns,
            self.manager.absent.due_ns,
        )  # fmt: skip
        return NEVER if self.is_closed else due_ns

    # What the application asks for.

    def subscribe(
        self, now: int, name: str, *, flags: int = 0, order: str = NO_ORDER,
        credentials: bytes = b"", patterns: Sequence[str] = (),
    ) -> Subscribed:  # fmt: skip
        """Subscribe to a service; who is the first creates it."""
        self.seat.now = now
        one = self.client.subscribe(
            now, name, flags=flags, order=order, credentials=credentials, patterns=patterns
        )
        self._follow(now)
        return one

    def want_everywhere(self, now: int, patterns: Sequence[str]) -> None:
        """Want what is published on subjects that match, whatever service they are in."""
        self.seat.now = now
        self.client.want_everywhere(now, patterns)
        self._follow(now)

    def unsubscribe(self, now: int, name: str) -> None:
        """End a subscription; with the last one the service ends."""
        self.seat.now = now
        self.client.unsubscribe(now, service_key(name))
        self._follow(now)

    def publish(
        self, now: int, name: str, payload: bytes, *, flags: int = 0, credentials: bytes = b"",
        is_urgent: bool = False, subject: str = "",
    ) -> int | None:  # fmt: skip
        """Publish in a service, subscribed or not; None: too many messages are under way."""
        return self.publish_in(
            now, self.publishing.lane(name, subject), payload, flags=flags, credentials=credentials,
            is_urgent=is_urgent,
        )  # fmt: skip

    def publish_in(
        self, now: int, lane: Lane, payload: bytes, *, flags: int = 0, credentials: bytes = b"",
        is_urgent: bool = False, patience_ns: int = 0,
    ) -> int | None:  # fmt: skip
        """Publish in a service that is known already."""
        self.seat.now = now
        if not (flags or credentials or is_urgent) and self.single.publish(now, lane, payload):
            return lane.last
        if not self.publishing.has_room_in(lane) or self.hops.is_crowded(now):
            return None
        return self.publishing.publish(
            now, lane, payload, flags=flags, credentials=credentials, is_urgent=is_urgent,
            patience_ns=patience_ns,
        )  # fmt: skip

    def has_room_in(self, lane: Lane) -> bool:
        """Tell whether a message can be published: others take what this node sends."""
        return self.publishing.has_room_in(lane) and not self.hops.is_crowded(self.seat.now)

    def manager_of(self, key: bytes) -> bytes:
        """Return who manages a service, as far as this node knows."""
        service = self.manager.services.get(key)
        if service is not None and service.is_served:
            return self.seat.node
        one = self.client.subscribed.get(key)
        if one is not None and one.is_confirmed:
            return one.manager
        return self.view.closest_to_ask(key) or self.seat.node

    def epoch_of(self, key: bytes) -> int:
        """Return the epoch of a service, as far as this node knows."""
        one, service = self.client.subscribed.get(key), self.manager.services.get(key)
        return max(one.epoch if one else 0, service.epoch if service else 0)

    def request_any(
        self, now: int, name: str, payload: bytes, *, credentials: bytes = b""
    ) -> int | None:
        """Ask any one member that answers; the reply comes with what is settled."""
        return self.publish(now, name, payload, flags=ANYCAST, credentials=credentials)

    def reply(self, now: int, info: Request, payload: bytes | None) -> None:
        """Answer a request that came to this node; None: there is no answer."""
        self.seat.now = now
        self.client.reply(now, info, payload)

    def roles_in(self, key: bytes) -> list[str]:
        """Return what this node is to a service."""
        service = self.manager.services.get(key)
        roles = ["guest"] if self.seat.is_guest else []
        if service is not None and service.role is not Role.ABSENT:
            roles.append(service.role.value)
        return roles + ["subscribed"] * (key in self.client.subscribed)

    def close(self, now: int) -> None:
        """Begin to leave: hand all services over, then say so."""
        self.seat.now = now
        if self.seat.is_leaving:
            return
        for key in list(self.client.subscribed):
            self.client.unsubscribe(now, key)
        if self.client.wild is not None:
            self.client.want_everywhere(now, ())
        self.seat.is_leaving = True
        self.view.version += 1
        self._leave_ns = now + LEAVE_PATIENCE // 2
        self.manager.look(now)
        self.manager.absent.leave(now)
        self._follow(now)

    # What arrives.

    def receive(self, now: int, data: bytes, place: Place) -> bool:
        """Take a datagram; True: its answer may wait until `deadline` is asked for."""
        self.seat.now = now
        if now - self._woke_ns > self._stall_ns:
            self._wake(now)
        if not self.is_closed:
            passage = self.express.take(now, data)
            if passage is not None:
                self.passed.append((now, place, passage))
                return not passage[2]  # A single message. Nobody came or went.
        self._receive(now, data, place)
        return False

    def receive_group(self, now: int, data: bytes, place: Place) -> bool:
        """Take a datagram that came by the group: as any other, if it is for us."""
        is_taken = not self.is_closed and self.ear.is_for_us(now, data, place)
        return self.receive(now, data, place) if is_taken else True

    def _receive(self, now: int, data: bytes, place: Place) -> None:
        """Take a datagram that did not go the short way."""
        drops = self.seat.drops
        if len(data) < HEADER_BYTES or data[:2] != MAGIC.to_bytes(2, "big"):
            self._receive_bare(now, data, place)
            return
        header = decode(data)
        if header.version >> 4 != MAJOR:
            drops["version"] += 1
        elif header.domain != self.seat.domain:
            drops["domain"] += 1
        elif header.key == self.seat.key:
            drops["own"] += 1
        elif header.flags & SEALED:
            drops["sealed"] += 1
        elif not is_intact(data, 0, len(data), header.checksum):
            drops["checksum"] += 1
        elif self.is_closed:
            drops["closed"] += 1
        elif not self._take(now, header.kind, header.key, data, place):
            drops["malformed"] += 1
        self._follow(now)

    def _take(self, now: int, kind: int, key: bytes, data: bytes, place: Place) -> bool:
        body = data[HEADER_BYTES:]
        node, life = split_key(key)
        if node in self.manager.doubts.strangers:
            self.manager.heard(now, node)
        if kind == MEMBERS:
            members = decode_members(body)
            if members is not None:
                self.swim.take(now, node, place, members)
            return members is not None
        if kind == NOTICE:
            return self._take_notices(now, node, life, body, place)
        self.swim.meet(now, node, life, place)
        if kind == SERVICE:
            request = decode_request(body)
            if request is not None:
                if not self.seat.is_first_version:  # The short way knows envelopes alone.
                    self.express.learn(node, data)
                self._take_request(now, node, place, request)
            return request is not None
        if kind == ANSWER:
            return self._take_answers(now, node, body)
        self.seat.drops["kind"] += 1
        return True

    def _take_notices(self, now: int, node: bytes, life: int, body: bytes, place: Place) -> bool:
        decoded = decode_notice(body)
        if decoded is None:
            return False
        hop, notice = decoded
        if isinstance(notice, Inquiry):
            self.looking.answer(node, place, notice)
        elif isinstance(notice, Inventory):
            self.looking.take(node, notice)
        else:
            self.swim.meet(now, node, life, place)
            self._answer(place, Answer(hop, self._take_notice(now, node, notice)))
        return True

    def _take_answers(self, now: int, node: bytes, body: bytes) -> bool:
        decoded = decode_answers(body)
        if decoded is None:
            return False
        for hint in decoded[1]:
            self.swim.hear_of(now, hint)
        self.hops.take(now, node, decoded[0])
        if node in self.manager.absent.boxes:
            self.manager.absent.heard(now, node)
        return True

    def _take_request(self, now: int, node: bytes, place: Place, request: Request) -> None:
        if request.flags & LEAVING:
            self.swim.note_leaving(now, node)
            request = request._replace(flags=request.flags & ~LEAVING)
            self._follow(now)
        type, key = request.message.type, request.message.key
        if type == INFO:
            answer = self._take_info(now, request)
            self._acknowledge_info(now, place, answer, len(request.message.rest))
            return
        if type == CHANGE_SERVICE_MANAGER:
            manager, _ = split_ids(request.message.rest)
            if manager == self.seat.node:
                self.manager.take_list(now, node, request)
            else:
                self.client.manager_changed(now, key, node, manager, request.epoch)
            answer = Answer(request.hop, TAKEN)
        else:
            if request.origin == node and request.extra.place is None:
                known = msgspec.structs.replace(request.extra, place=place)
                request = request._replace(extra=known)
            if type != PUBLISH:
                request = self.first_version.recognise(now, request)
            answer = self.manager.take(now, request)
            if type == PUBLISH and answer.status == TAKEN:
                self._answer_publish(now, place, answer, request.flags, len(request.message.rest))
                return
        self._answer(place, answer)

    def _answer_publish(
        self, now: int, place: Place, answer: Answer, flags: int, size_bytes: int
    ) -> None:
        """Tell that a message was taken: soon, or when those who are to have it have caught up."""
        if self.hops.is_crowded(now):
            self._late.append((place, answer))
        elif flags & PROMPT:
            self._answer(place, answer)
        else:
            self._acknowledge(now, place, answer, size_bytes)
            if flags & BATCH:
                self._hurrying.add(place)
            limit = PUBLISHES_PER_ANSWER if place in self._hurrying else SINGLES_PER_ANSWER
            if len(self._acks[place]) >= limit:
                self._answers.setdefault(place, []).extend(self._acks.pop(place))

    def _take_info(self, now: int, info: Request) -> Answer:
        """Take a message, and pass it on to those below us, once."""
        if info.extra.nodes:
            self.manager.pass_on(now, info)
        return self.client.deliver(now, info)

    def _take_notice(self, now: int, node: bytes, notice: Notice) -> int:
        """Take a notice; return the status of the answer to it."""
        manager, status = self.manager, TAKEN
        if isinstance(notice, Result):
            answer = Answer(0, notice.status, notice.epoch, notice.number, node)
            self.client.settle(
                now, notice.key, notice.asked, notice.sequence, answer, notice.subject
            )
        elif isinstance(notice, Reply):
            self.publishing.take_reply(now, notice)
        elif isinstance(notice, Copy):
            status = manager.take_copy(now, node, notice)
        elif isinstance(notice, Kept):
            status = manager.take_kept(now, notice)
        elif isinstance(notice, Query):
            manager.answer_query(now, node, notice.key)
        elif isinstance(notice, Known):
            manager.take_known(now, node, notice)
        else:
            assert isinstance(notice, ListTaken)
            manager.take_list_taken(now, node, notice)
        return status

    def _lose(self, now: int, node: bytes, frame: bytes) -> None:
        """Keep a message that a node did not acknowledge: it may only stand still."""
        self.manager.absent.take_frame(now, node, frame)

    def _acknowledge_info(self, now: int, place: Place, answer: Answer, size_bytes: int) -> None:
        """Acknowledge a message of a manager; say so if it was heard in the group."""
        if self.ear.heard:
            answer = self.ear.mark(now, place, answer)
        self._acknowledge(now, place, answer, size_bytes)

    def _acknowledge(self, now: int, place: Place, answer: Answer, size_bytes: int) -> None:
        """Acknowledge a message, soon: many at once cost who sent them as little as one."""
        self._acks.setdefault(place, []).append(answer)
        self._acks_count += 1
        self._acks_bytes += size_bytes
        self._acks_ns = min(self._acks_ns, now + ACK_DELAY)

    def _answer(self, place: Place, answer: Answer) -> None:
        self._answers.setdefault(place, []).append(answer)
        if answer.status == PASSED:
            self._hints.setdefault(place, set()).add(answer.manager)

    def _receive_bare(self, now: int, data: bytes, place: Place) -> None:
        """Take a message of the first version."""
        message = decode_message(data)
        if message is None or self.is_closed:
            is_long = len(data) > BARE_BYTES_MAX
            reason = "short" if len(data) < HEADER_BYTES else "size" if is_long else "magic"
            self.seat.drops[reason] += 1
            return
        self.first_version.take(now, message, place)
        self._follow(now)

    # Time.

    def advance(self, now: int) -> None:
        """Do what is due."""
        self.seat.now = now
        if self.is_closed:
            return
        if now - self._woke_ns > self._stall_ns:
            self._wake(now)
        self._woke_ns = now
        if now >= self.swim.due_ns:
            self.swim.advance(now)
            self._follow(now)
        self.hops.advance(now)
        self._follow(now)
        self.manager.advance(now)
        self.manager.everywhere.advance(now)
        self.manager.absent.advance(now)
        self.client.advance(now)
        self.publishing.advance(now)
        self._follow(now)
        if self.seat.is_leaving:
            self._go(now)

    def _wake(self, now: int) -> None:
        """Find out what became of us while we stood still: others may have taken us for dead."""
        self._woke_ns = now
        if not self.seat.is_leaving:
            self.manager.stood_still(now)

    def _go(self, now: int) -> None:
        """Leave for good once everything was handed over, or patience ends."""
        is_free = not self.manager.has_services and not self.hops.open
        is_free = is_free and self.publishing.is_settled
        is_last = not self.view.present()  # There is nobody to hand over to.
        if not is_free and not is_last:
            if now < self._leave_ns:
                return
            if not self._has_entrusted:
                self._entrust(now)
                return
        self.swim.leave(now)
        self.is_closed = True

    def _entrust(self, now: int) -> None:
        """Leave to those who come next what is not acknowledged after half of our patience.

        A message may be lost at each try until we are gone: the next manager tries it anew.
        """
        self._has_entrusted = True
        self._leave_ns = now + LEAVE_PATIENCE // 2
        for node, frame in self.hops.unacknowledged():
            self.manager.absent.entrust_frame(now, node, frame)

    def _follow(self, now: int) -> None:
        """Let the others know who has come and gone."""
        changes = self.swim.changes
        if self.swim.was_declared_dead:
            self.swim.was_declared_dead = False
            self.client.resubscribe(now)
        if changes:
            self.swim.changes = []
            self._tell_changes(now, changes)
        to_ask = self.manager.doubts.to_ask
        if to_ask:
            for node, place in to_ask.items():
                self.swim.ask(node, place)
            to_ask.clear()

    def _tell_changes(self, now: int, changes: list[tuple[News, Member]]) -> None:
        for news, member in changes:
            if news in (News.DIED, News.WENT):
                self.hops.forget(now, member.node)
            if news in (News.DIED, News.WENT, News.RESTARTED, News.CAME):
                self.group.forget(member.node)
                self.manager.member_gone(now, member.node)
            if news in (News.CAME, News.CLEARED, News.RESTARTED):
                self.manager.absent.heard(now, member.node)
            elif news is News.WENT:
                self.manager.absent.drop(member.node)
            if news in (News.CAME, News.RESTARTED):
                self.first_version.adopt(now, member)
            self.seat.events.append(MemberNews(news, member.node))
        if any(news is not News.SUSPECTED for news, _ in changes):
            self.manager.look(now)
            self.client.members_changed(now)
