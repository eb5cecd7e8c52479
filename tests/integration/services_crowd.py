"""Processes that share services without multicast, and a node of the test that publishes to them.

Each member subscribes to some services, tells of each list that it manages whenever that changes,
and in the end what it had.
"""

import random
import select
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import Any

import hubbub
from hubbub.limits import COPIES
from hubbub.wire.services import distance, node_key, service_key
from tests.integration.bus import DEADLINE_S, Actor, acting, fresh_place, hear, say
from tests.integration.services_story import Kill, List, Member, Silence, Story, Told

SERVING = ("managing", "handing")
KEEPING = ("copy", "forwarding")  # Who has handed a list over is often the next one, and keeps it.
LATE_S = 0.1  # So much of the time that a publisher was late is made up for.
LOOK_S = 0.1  # So often each process looks at its lists.
SILENCE_S = 0.5  # What is shorter is not told.


def open_member(domain: str, peers: list[str]) -> hubbub.Node:
    return hubbub.open(
        domain=domain, interface="127.0.0.1", multicast=False, listen=0, peers=peers,
        links=["tcp"], services=True,
    )  # fmt: skip


class Diary:
    """What a subscriber had, and when nothing came."""

    def __init__(self) -> None:
        self.had: Counter[int] = Counter()
        self.silences: list[tuple[str, float, float]] = []
        self._last_s: dict[str, float] = {}

    def follow(self, service: hubbub.Service) -> None:
        """Subscribe to a service, on the I/O thread: another would cost half as much again."""
        name = service.name
        service.subscribe(lambda one: self._note(name, int(bytes(one.payload))), inline=True)

    def _note(self, name: str, number: int) -> None:
        now = time.monotonic()
        self.had[number] += 1
        last_s = self._last_s.get(name, now)
        if now - last_s > SILENCE_S:
            self.silences.append((name, last_s, now))
        self._last_s[name] = now

    def tell(self) -> dict[str, Any]:
        """Return all of it."""
        return {"had": sorted(self.had.elements()), "silences": self.silences}


class Watch:
    """Looks at the lists that a node manages, and at its copies of others."""

    def __init__(self, node: hubbub.Node) -> None:
        self._node = node
        self._known: dict[str, list[Any]] = {}

    def look(self) -> Iterator[list[Any]]:
        """Tell of each list that has changed, as `Told` has it."""
        managed, now = self._node.services.statistics().managed, time.monotonic()
        found = {
            one.name: [one.role not in SERVING, one.epoch, one.subscribers]
            for one in managed
            if one.role in (*SERVING, *KEEPING)
        }
        for name in self._known.keys() | found.keys():
            known = found.get(name, [])
            if known != self._known.get(name, []):
                yield [self._node.id.hex(), name, now, *known]
        self._known = found


def play_member(domain: str, peers: list[str], wanted: list[str]) -> None:
    """Subscribe, tell of what is managed here, and in the end of what came."""
    with open_member(domain, peers) as node:
        opened_s, diary = time.monotonic(), Diary()
        # Who knows nobody yet would have its subscriptions confirmed by itself.
        assert node.services.wait_for_members(1, DEADLINE_S)
        services = [node.service(name) for name in wanted]
        for service in services:
            diary.follow(service)
        watch, is_in, word = Watch(node), False, ""
        while word != "leave":
            for told in watch.look():
                say({"list": told})
            if not is_in and all(one.wait_until_subscribed(0) for one in services):
                is_in = True
                say({"joined": [node.id.hex(), opened_s, time.monotonic()]})
            word = hear() if select.select([sys.stdin], [], [], LOOK_S)[0] else ""
            if word == "report":
                say({"report": diary.tell()})
    say({"report": diary.tell()})


def far_name(node: bytes) -> str:
    """Return the name of a service that any other node is closer to than this one."""
    names = (f"service-{number}" for number in count(100))
    key = node_key(node)
    return next(name for name in names if distance(key, service_key(name)) >> 150 == 0x3FF)


class Town:
    """The members of a test: processes, and a node of the test's own that publishes."""

    def __init__(self, stack: ExitStack, services: int) -> None:
        self._stack = stack
        self._domain = fresh_place().domain
        self.node = stack.enter_context(open_member(self._domain, []))
        # The first is one that a process manages, not the test itself.
        names = [far_name(self.node.id), *(f"service-{number}" for number in range(1, services))]
        self.story = Story(names)
        self.members: dict[str, Actor] = {}
        self._opening: list[tuple[Actor, list[str]]] = []
        self._diary = Diary()
        self._join_self()

    def _join_self(self) -> None:
        now, own, names = time.monotonic(), self.node.id.hex(), self.story.names
        for name in names:
            self._diary.follow(self.node.service(name))
        for name in names:
            assert self.node.service(name).wait_until_subscribed(DEADLINE_S)
        self.story.members[own] = Member(own, names, now, time.monotonic())

    def look(self, is_over: threading.Event) -> None:
        """Look at the lists of the test's own node."""
        watch = Watch(self.node)
        while not is_over.wait(LOOK_S):
            for told in watch.look():
                self._note(*told)

    # Coming and going.

    def begin(self, wanted: list[str]) -> None:
        """Start a member, and do not wait for it."""
        peers = [self.node.services.address]
        actor = acting(play_member, self._domain, peers, wanted)
        self._opening.append((self._stack.enter_context(actor), wanted))

    def welcome(self, timeout_s: float = 0) -> None:
        """Count those who have arrived, and wait so long for all of the others."""
        end_s = time.monotonic() + timeout_s
        opening, self._opening = self._opening, []
        for actor, wanted in opening:
            joined = self._hear(actor, "joined", end_s - time.monotonic())
            if joined is None:
                self._opening.append((actor, wanted))
            else:
                member = Member(joined[0], wanted, *joined[1:])
                self.members[member.id] = actor
                self.story.members[member.id] = member
        assert not timeout_s or not self._opening, f"not here after {timeout_s} s: {self._opening}"

    def fill(self, processes: int, wanted: int) -> None:
        """Open as many members as there are to be, each with its share of the services."""
        names = self.story.names
        for number in range(processes):
            self.begin([names[(number + turn) % len(names)] for turn in range(wanted)])
        self.welcome(2 * DEADLINE_S)
        self.settle(DEADLINE_S)

    def manager(self) -> str | None:
        """Return a process that manages something, as it says itself."""
        self._listen()
        found = sorted(
            {manager for _, manager, _ in self.story.lists(is_copy=False)} & self.members.keys()
        )
        return random.choice(found) if found else None

    def kill(self, member: str) -> None:
        """Kill a member; another begins in its place."""
        gone, actor = self.story.members[member], self.members.pop(member)
        now = time.monotonic()
        heir_of = {name for name in self.story.names if self.story.rank(name, now)[0] is gone}
        gone.parting_s = time.monotonic()
        actor.signal(signal.SIGKILL)
        actor.ends()
        gone.gone_s = time.monotonic()
        with suppress(AssertionError):  # After all that it has said: that it has ended.
            self._hear(actor, "nothing", 1)
        served = self.story.served_by(member)
        kill = Kill(gone.parting_s, gone.gone_s, member, frozenset(served | heir_of))
        self.story.kills.append(kill)
        self.begin(gone.names)

    def send_away(self, member: str) -> None:
        """Let a member leave politely; another begins in its place."""
        gone, actor = self.story.members[member], self.members.pop(member)
        gone.parting_s = time.monotonic()
        actor.tell("leave")
        _take_report(gone, self._hear(actor, "report", DEADLINE_S))
        gone.gone_s = time.monotonic()
        self.begin(gone.names)

    # What is said.

    def _hear(self, actor: Actor, kind: str, timeout_s: float) -> Any:
        """Return what is said next, but for lists, which are noted; None: nothing in no time."""
        end_s = time.monotonic() + timeout_s
        while actor.has_spoken or timeout_s > 0:
            [(said, what)] = actor.hear(max(0.0, end_s - time.monotonic())).items()
            if said == kind:
                return what
            self._note(*what)
        return None

    def _note(
        self, member: str, name: str, at_s: float, is_copy: bool = False, epoch: int = 0,
        listed: Iterable[str] | None = None,
    ) -> None:  # fmt: skip
        subscribers = None if listed is None else frozenset(listed)
        self.story.told.append(Told(member, name, at_s, is_copy, epoch, subscribers))

    def settle(self, timeout_s: float) -> None:
        """Wait until the right nodes have the right lists, and others the copies of them."""
        there = [self.story.members[member] for member in (self.node.id.hex(), *self.members)]
        managed, copies = set[List](), set[List]()
        for name in self.story.names:
            listed = frozenset(one.id for one in there if name in one.names)
            first, *others = self.story.rank(name, time.monotonic())
            managed.add((name, first.id, listed))
            copies.update((name, one.id, listed) for one in others[:COPIES])
        expected = {(name, manager, len(listed)) for name, manager, listed in managed}

        def find_odd() -> list[Any]:
            self._listen()
            found = {(one.name, one.manager, one.subscribers) for one in self.node.services.find(1)}
            told = self.story.lists(is_copy=False)
            missing = copies - self.story.lists(is_copy=True)
            return sorted(map(str, (told ^ managed) | (found ^ expected) | missing))

        end_s = time.monotonic() + timeout_s
        while odd := find_odd():
            assert time.monotonic() < end_s, f"not right after {timeout_s} s: {odd}"

    def _listen(self) -> None:
        for actor in self.members.values():
            assert self._hear(actor, "nothing", 0) is None

    def gather(self, is_enough: Callable[[], bool], timeout_s: float) -> None:
        """Let everybody tell what it had, again if that is not enough yet; the story is over."""
        end_s, is_over = time.monotonic() + timeout_s, False
        while not is_over:
            is_over = time.monotonic() > end_s
            _take_report(self.story.members[self.node.id.hex()], self._diary.tell())
            for member, actor in self.members.items():
                actor.tell("report")
                _take_report(self.story.members[member], self._hear(actor, "report", DEADLINE_S))
            is_over = is_over or is_enough()
        self.story.over_s = time.monotonic()

    # Publishing.

    @contextmanager
    def publishing(self, rate_hz: int) -> Iterator[None]:
        """Publish in all services in turn, so much in all of them together."""
        start_s = time.monotonic()
        with _repeating(lambda is_over: self._publish(is_over, rate_hz)):
            yield
        self.story.planned = int(rate_hz * (time.monotonic() - start_s))

    def _publish(self, is_over: threading.Event, rate_hz: int) -> None:
        published, services = self.story.published, [self.node.service(n) for n in self.story.names]
        due_s = time.monotonic()
        while not is_over.is_set():
            number = len(published)
            published.append(time.monotonic())
            services[number % len(services)].publish(b"%d" % number)
            # Who is late catches up a little: a burst of seconds would be another rate.
            due_s = max(due_s + 1 / rate_hz, time.monotonic() - LATE_S)
            if due_s > time.monotonic():
                time.sleep(max(0.0, due_s - time.monotonic()))


def _take_report(member: Member, report: dict[str, Any]) -> None:
    member.had = Counter(report["had"])
    member.silences = [Silence(*one) for one in report["silences"]]


@contextmanager
def _repeating(function: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run something in a thread until the end of a block."""
    is_over = threading.Event()
    thread = threading.Thread(target=function, args=(is_over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def founding(services: int) -> Iterator[Town]:
    """Found a town; its node is the first to leave, while there is somebody to take its lists."""
    with ExitStack() as stack:
        town = Town(stack, services)
        with _repeating(town.look):
            yield town
        town.node.close()
