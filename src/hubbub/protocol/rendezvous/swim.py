"""Membership without multicast: pings, suspicion, and news that travel with both (SWIM).

Each round a member pings another; who does not answer is pinged by others, too, then suspected, and
dead if it does not object: only it can, by raising its own incarnation. News ride on every frame as
long as they are new. Views are compared now and then, and the dead are pinged, so that what was
parted finds together again. The shell names the first addresses; the rest is told.

A node that was kept from running must not take its own lateness for the silence of others: it gives
them as much time again.
"""

from math import ceil, log2
from typing import NamedTuple

import msgspec

from hubbub.limits import (
    DEAD_KEPT,
    FORMER_INTERVAL,
    FORMER_PLACES_MAX,
    INCARNATION_LEAD_US,
    JOIN_INTERVAL,
    MS,
    RECORDS_PER_FRAME_MAX,
    SECOND,
    SEEDS_MAX,
    US,
)
from hubbub.protocol.rendezvous.profile import Profile
from hubbub.protocol.rendezvous.seat import NEVER, Place, Seat
from hubbub.protocol.rendezvous.view import Member, News, State, View, fold
from hubbub.wire.header import MEMBERS
from hubbub.wire.services import (
    ACK,
    ASK,
    COMPARE,
    JOIN,
    NEWS,
    NOBODY,
    PING,
    VIEW,
    Members,
    Record,
    encode_members,
)

_FAN_OUT = 3  # Of a round of news.
_COMPARE_INTERVAL = 5 * SECOND
_REVIVAL_INTERVAL = 2 * SECOND  # Between two pings of somebody who is dead.
_RELAYS_MAX = 1024


class Probe(NamedTuple):
    """A ping that is not answered yet."""

    node: bytes
    due_ns: int
    is_indirect: bool


class Swim:
    """Keeps the view of one node."""

    def __init__(
        self, seat: Seat, view: View, profile: Profile, seeds: list[Place], incarnation: int
    ) -> None:
        self.seat = seat
        self.view = view
        self.profile = profile
        self.seeds = seeds
        self.incarnation = incarnation
        seat.stamp_above(incarnation)  # Also if the clock goes back: requests are of this life.
        self.changes: list[tuple[News, Member]] = []
        self.was_declared_dead = False  # And has objected; the client looks at it.
        self._mourned = -1  # The last incarnation in which we were.
        self.due_ns = seat.now
        self._news: dict[bytes, int] = {}  # Whom there is news of, and how often it is still told.
        self._order: list[bytes] = []  # Whom to ping next.
        self._number = 0
        self._probes: dict[int, Probe] = {}
        self._relays: dict[int, tuple[Place, int]] = {}  # Pings for others, by our number.
        self._suspects: dict[bytes, int] = {}
        self._probe_ns = seat.now + int(seat.random.random() * profile.probe_ns)
        self._gossip_ns = NEVER
        self._join_ns = seat.now
        self._compare_ns = seat.now + _COMPARE_INTERVAL
        self._revive_ns = seat.now + _REVIVAL_INTERVAL
        self._former: dict[Place, None] = {}  # Where the dead were that we have forgotten;
        self._former_ns = NEVER  # who is asked next is first.

    # What the others of this node tell.

    def suspect(self, now: int, node: bytes) -> None:
        """Hear that a node does not answer."""
        member = self.view.members.get(node)
        if member is not None and member.state is State.ALIVE:
            self._tell_of(now, member, State.SUSPECT)

    def hear_of(self, now: int, record: Record) -> None:
        """Hear of a node by what another tells of it."""
        member = self.view.members.get(record.node)
        if member is not None and record.incarnation <= member.incarnation:
            is_older = record.incarnation < member.incarnation
            if is_older or record.state <= member.state:
                return  # As nearly all that is told: it was told before.
        if not record.host or record.node == self.seat.node:
            return
        if not record.is_reachable:
            self.seat.drops["place"] += 1
        elif self._is_credible(now, record):
            self._apply(now, record, (record.host, record.port))

    def meet(self, now: int, node: bytes, life: int, place: Place) -> None:
        """Hear a frame of a node; one that was never told of is asked who it is."""
        member = self.view.members.get(node)
        if member is None:
            self._apply(now, Record(node, place[0], place[1], 0, life, 0), place)
            self._ping(now, node, place)
            return
        member.heard_ns = now
        if member.is_guest:
            member.changed_ns = now  # Forgotten, it would come and leave once more.

    def add_seed(self, now: int, place: Place) -> None:
        """Ask at one more address from now on."""
        if place not in self.seeds:
            self.seeds = [*self.seeds[-SEEDS_MAX + 1 :], place]
            self._join_ns = now
            self._plan()

    def announcement(self, port: int) -> Members:
        """Say to a whole group that we are here, at this port of the address it comes from."""
        own = msgspec.structs.replace(self.own_record(), port=port)
        return Members(JOIN, 0, NOBODY, 0, [own])

    def greet(self, now: int, host: str, members: Members) -> None:
        """Hear such an announcement: ask who sent it for all that it knows."""
        own = members.records[0]
        if own.node != self.seat.node and own.port and not self.view.is_present(own.node):
            self._send((host, own.port), JOIN)

    def note_leaving(self, now: int, node: bytes) -> None:
        """Hear that a node is about to leave: it manages nothing any more."""
        member = self.view.members.get(node)
        if member is not None and member.is_present:
            self._tell_of(now, member, State.LEFT)

    def ask(self, node: bytes, place: Place, number: int = 0) -> None:
        """Ask a node whether it lives; one that is taken for dead is told so, and may object."""
        member = self.view.members.get(node)
        records = [member.record()] if member is not None and member.state else []
        self._send(place, PING, number, records=records)

    def leave(self, now: int) -> None:
        """Tell many that we go."""
        self.incarnation += 1
        members = [*self.view.present()]
        self.seat.random.shuffle(members)
        for member in members[:32]:
            self._send(member.place, NEWS)

    # What arrives.

    def take(self, now: int, node: bytes, place: Place, members: Members) -> None:
        """Take a frame of another member."""
        own, *told = members.records
        if own.node != node:
            self.seat.drops["member"] += 1
            return
        was = self.view.members.get(node)
        death = was.record() if was is not None and was.state is State.DEAD else None
        if not self._is_credible(now, own):
            return
        self._apply(now, own, place)
        self._note_life(now, node)
        if death is not None and self.view.is_present(node):
            # It may never have heard of that: its objection to the suspicion came too late.
            self._send(place, NEWS, records=[death])
        for record in told:
            if record.node == self.seat.node:
                if self._is_credible(now, record, leads=2):
                    self._object(now, record)
            else:
                self.hear_of(now, record)
        self._answer(now, node, place, members)
        self._plan()

    def _answer(self, now: int, node: bytes, place: Place, members: Members) -> None:
        member, said = self.view.members.get(node), members.records[0].state
        # Who goes says so itself: two that go at once would tell each other for ever.
        wrongly = [member.record()] if member is not None and member.state > said else []
        form = members.form
        if form == PING:
            self._send(place, ACK, members.number, records=wrongly)
        elif form == ACK:
            self._take_ack(now, members.number, node)
        elif form == ASK:
            self._relay(now, place, members)
        elif form == JOIN:
            self._send_view(place)
        elif form == COMPARE:
            own = self.view.digest ^ fold(self.seat.node, self.incarnation)
            if own != members.digest:
                self._send_view(place)
                if not members.number:
                    self._send(place, COMPARE, 1)
        elif wrongly:
            self._send(place, NEWS, records=wrongly)

    def _take_ack(self, now: int, number: int, node: bytes) -> None:
        probe = self._probes.get(number)
        if probe is not None and (probe.node == node or probe.is_indirect):
            del self._probes[number]
            self._note_life(now, probe.node)
        relayed = self._relays.pop(number, None)
        if relayed is not None:
            self._send(relayed[0], ACK, relayed[1])

    def _note_life(self, now: int, node: bytes) -> None:
        member = self.view.members.get(node)
        if member is not None:
            member.heard_ns = now

    def _relay(self, now: int, place: Place, members: Members) -> None:
        """Ping a member for somebody whom it does not answer."""
        target = self.view.place_of(members.target)
        if target is None or len(self._relays) >= _RELAYS_MAX:
            return
        self._number += 1
        self._relays[self._number] = (place, members.number)
        self.ask(members.target, target, self._number)

    def _object(self, now: int, record: Record) -> None:
        """Read what is told of ourselves, and contradict it if it is wrong.

        That we were dead concerns us also after we have contradicted the suspicion before it: who
        believed it has struck us off.
        """
        is_older = record.incarnation < self.incarnation
        is_dead = record.state >= State.DEAD and (record.life == self.seat.life or not is_older)
        if is_dead and record.incarnation > self._mourned and self.seat.may_manage:
            self._mourned = record.incarnation
            self.was_declared_dead = True
        is_me = record.incarnation == self.incarnation and record.life == self.seat.life
        if is_older or (is_me and record.state == State.ALIVE) or not self.seat.may_manage:
            return
        self.incarnation = record.incarnation + 1
        self.seat.stamp_above(self.incarnation)  # Requests of an earlier life are below it.
        self._news[self.seat.node] = self._retellings()
        self._gossip_ns = min(self._gossip_ns, now)

    def _is_credible(self, now: int, record: Record, leads: int = 1) -> bool:
        """Tell whether a clock may have given an incarnation; what nobody can raise is no news.

        Of ourselves twice as much is believed: whatever others take, we can contradict.
        """
        clock_us = (now + self.seat.wall_offset_ns) // US
        is_credible = record.incarnation <= clock_us + leads * INCARNATION_LEAD_US
        if not is_credible:
            self.seat.drops["incarnation"] += 1
        return is_credible

    def _apply(self, now: int, record: Record, place: Place) -> None:
        news = self.view.apply(now, record, place)
        if news is None:
            return
        member = self.view.members[record.node]
        self._note(now, news, member)

    def _tell_of(self, now: int, member: Member, state: State) -> None:
        """Say ourselves that somebody is worse off than thought."""
        worse = msgspec.structs.replace(member.record(), state=int(state))
        self._apply(now, worse, member.place)
        self._plan()

    def _note(self, now: int, news: News, member: Member) -> None:
        self.changes.append((news, member))
        self._news[member.node] = self._retellings()
        self._gossip_ns = min(self._gossip_ns, now + self.profile.gossip_ns // 4)
        if member.state is State.SUSPECT:  # Also one that we hear of as such, and never knew.
            until_ns = now + self.profile.suspicion_ns
            self._suspects[member.node] = max(until_ns, self._silent_ns(member))
        else:
            self._suspects.pop(member.node, None)

    def _retellings(self) -> int:
        return 3 * ceil(log2(len(self.view.members) + 2))

    # Time.

    def advance(self, now: int) -> None:
        """Do what is due."""
        late_ns = now - self.due_ns
        if late_ns > self.profile.ack_ns:
            self._excuse(late_ns)
        self._lose_patience(now)
        for member in self.view.settle(now):
            self.changes.append((News.SETTLED, member))
        if now >= self._probe_ns:
            self._probe_ns = now + self.profile.probe_ns
            self._probe(now)
        if now >= self._join_ns:
            self._look_for_others(now)
        if now >= self._compare_ns:
            self._compare(now)
        if now >= self._revive_ns:
            self._revive(now)
        if now >= self._former_ns:
            self._ask_former(now)
        if now >= self._gossip_ns:
            self._gossip(now)
        self._plan()

    def _lose_patience(self, now: int) -> None:
        """Go on where no answer came."""
        for number, probe in list(self._probes.items()):
            if probe.due_ns <= now:
                self._miss(now, number, probe)
        for node, until_ns in list(self._suspects.items()):
            if until_ns <= now:
                member = self.view.members[node]
                if self._silent_ns(member) <= now:
                    self._tell_of(now, member, State.DEAD)
                else:  # It was heard meanwhile.
                    self._suspects[node] = self._silent_ns(member)

    def _silent_ns(self, member: Member) -> int:
        """Return when a member has been silent for so long that it may count as dead."""
        return member.heard_ns + self.profile.silence_ns

    def _plan(self) -> None:
        self.due_ns = min(
            self._probe_ns, self._gossip_ns, self._join_ns, self._compare_ns, self._revive_ns,
            self._former_ns, self.view.due_ns, *(probe.due_ns for probe in self._probes.values()),
            *self._suspects.values(),
        )  # fmt: skip

    def _excuse(self, late_ns: int) -> None:
        """Give everybody the time that we did not have."""
        self._probes = {
            number: probe._replace(due_ns=probe.due_ns + late_ns)
            for number, probe in self._probes.items()
        }
        for node in self._suspects:
            self._suspects[node] += late_ns

    def _probe(self, now: int) -> None:
        """Ping the next members; all have their turn before one has it again."""
        count = self.profile.probes or len(self.view.members)
        for _ in range(count):
            while self._order and not self.view.is_present(self._order[-1]):
                self._order.pop()
            if not self._order:
                self._order = [member.node for member in self.view.present()]
                self.seat.random.shuffle(self._order)
                if not self._order:
                    return
            node = self._order.pop()
            self._ping(now, node, self.view.members[node].place)

    def _ping(self, now: int, node: bytes, place: Place) -> None:
        self._number += 1
        self._probes[self._number] = Probe(node, now + self.profile.ack_ns, False)
        self.ask(node, place, self._number)

    def _miss(self, now: int, number: int, probe: Probe) -> None:
        """Go on with a ping that was not answered: by others, then by suspicion."""
        del self._probes[number]
        if not self.view.is_present(probe.node):
            return
        others = [one for one in self.view.present() if one.node != probe.node]
        if probe.is_indirect or not others:
            self.suspect(now, probe.node)
            return
        count = min(self.profile.indirect, len(others))
        for member in self.seat.random.sample(others, count):
            self._send(member.place, ASK, number, target=probe.node)
        self._probes[number] = Probe(probe.node, now + 2 * self.profile.ack_ns, True)

    def _look_for_others(self, now: int) -> None:
        """Ask at the addresses that we were given, as long as nobody is known there."""
        there = {member.place for member in self.view.present()}
        for place in self.seeds:
            if place not in there:
                self._send(place, JOIN)
        is_alone = not there
        wait_ns = JOIN_INTERVAL if is_alone else _COMPARE_INTERVAL
        self._join_ns = now + wait_ns if self.seeds else NEVER

    def _compare(self, now: int) -> None:
        """Compare our view with that of somebody."""
        wait_ns = int(_COMPARE_INTERVAL * (0.5 + self.seat.random.random()))
        self._compare_ns = now + wait_ns
        members = self.view.present()
        if members:
            self._send(self.seat.random.choice(members).place, COMPARE)

    def _revive(self, now: int) -> None:
        """Ping somebody who is dead: the network may have been parted, and no more."""
        self._revive_ns = now + _REVIVAL_INTERVAL
        dead = []
        for member in list(self.view.members.values()):
            if not member.is_present and now - member.changed_ns > DEAD_KEPT:
                self._forget(now, member)
            elif member.state is State.DEAD:
                dead.append(member)
        if dead:
            member = self.seat.random.choice(dead)
            self.ask(member.node, member.place)
        self._relays = {} if len(self._relays) >= _RELAYS_MAX else self._relays

    def _forget(self, now: int, member: Member) -> None:
        """Let go of one who is long gone; if it is dead, remember where it was.

        A network may be parted for longer than the dead are kept, with no first address across.
        """
        self.view.forget(member.node)
        if member.state is State.DEAD:
            self._former[member.place] = None
            self._former_ns = min(self._former_ns, now + FORMER_INTERVAL)
            if len(self._former) > FORMER_PLACES_MAX:
                del self._former[next(iter(self._former))]

    def _ask_former(self, now: int) -> None:
        """Ask where somebody was long ago, each place in its turn."""
        there = {member.place for member in self.view.present()}
        self._former = {place: None for place in self._former if place not in there}
        self._former_ns = now + FORMER_INTERVAL if self._former else NEVER
        if self._former:
            place = next(iter(self._former))
            del self._former[place]
            self._former[place] = None
            self._send(place, JOIN)

    def _gossip(self, now: int) -> None:
        """Tell some what is new."""
        self._gossip_ns = NEVER if not self._news else now + self.profile.gossip_ns
        members = self.view.present()
        if not self._news or not members:
            return
        for member in self.seat.random.sample(members, min(_FAN_OUT, len(members))):
            self._send(member.place, NEWS)

    # What leaves.

    def own_record(self) -> Record:
        """Return what we tell of ourselves."""
        state = State.ALIVE if self.seat.may_manage else State.LEFT
        life = self.seat.life
        return Record(self.seat.node, "", 0, self.incarnation, life, int(state), self.view.weight)

    def _send(
        self, place: Place, form: int, number: int = 0, *, target: bytes = NOBODY,
        records: list[Record] | None = None,
    ) -> None:  # fmt: skip
        told = [self.own_record(), *(records or [])]
        self._add_news(told)
        digest = 0
        if form == COMPARE:
            digest = self.view.digest ^ fold(self.seat.node, self.incarnation)
        body = encode_members(Members(form, number, target, digest, told))
        self.seat.send(place, MEMBERS, body)

    def _add_news(self, told: list[Record]) -> None:
        """Let what is newest ride along."""
        room = RECORDS_PER_FRAME_MAX - len(told)
        for node in sorted(self._news, key=self._news.__getitem__, reverse=True)[:room]:
            member = self.view.members.get(node)
            if member is not None:
                told.append(member.record())
            self._news[node] -= 1
            if not self._news[node]:
                del self._news[node]

    def _send_view(self, place: Place) -> None:
        """Tell all that we know of who is here."""
        records = [member.record() for member in self.view.present()]
        step = RECORDS_PER_FRAME_MAX - 1
        for at in range(0, len(records) or 1, step):
            told = [self.own_record(), *records[at : at + step]]
            body = encode_members(Members(VIEW, 0, NOBODY, 0, told))
            self.seat.send(place, MEMBERS, body)


def first_incarnation(now: int, wall_offset_ns: int) -> int:
    """Return an incarnation that is higher than those of earlier lives, if clocks go forward."""
    # A little below the stamps of requests, so that objections do not overtake those.
    return max(0, now + wall_offset_ns - MS) // US
