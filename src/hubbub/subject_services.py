"""Ordinary subjects by services: what `links=["services"]` makes of publish and subscribe.

The first levels of a subject name its service, so whoever publishes and subscribes there finds the
same manager, and knows nobody else. A pattern whose first levels have a wildcard is told to every
node (decision 31). What arrives is handed out as what arrives by any other link.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any

from hubbub.bare_topics import BareTopic, BareTopics
from hubbub.errors import ClosedError
from hubbub.limits import SERVICE_SUBJECTS_KEPT
from hubbub.message import Source
from hubbub.protocol.delivery import SERVICES, Delivery
from hubbub.protocol.rendezvous.client import FIFO
from hubbub.protocol.rendezvous.seat import Delivered
from hubbub.service import check_payload, make_served, unite
from hubbub.wire.services import NO_LOCAL, service_key

if TYPE_CHECKING:
    from hubbub.connection import Connection
    from hubbub.publisher import Publisher
    from hubbub.services import Services

_EVERYTHING = "/..."
_WILDCARDS = ("*", "...")
_ASK_AGAIN_S = 0.1  # Who waits for receivers asks the manager so often.


class SubjectServices:
    """The subjects of one node, and the services that they travel by."""

    def __init__(self, connection: "Connection", services: "Services", levels: int) -> None:
        self._connection = connection
        self._services = services
        self._driver = services.driver
        self._machine = services.driver.machine
        self._levels = levels
        self._lock = Lock()
        self._wanted: Counter[str] = Counter()
        self._asked: dict[str, tuple[str, ...]] = {}  # Patterns by service; "": everywhere.
        self._topics: BareTopics[tuple[bytes, int, str]] = BareTopics(
            SERVICE_SUBJECTS_KEPT, _make_topic
        )

    def service_of(self, subject: str) -> str:
        """Return the name of the service that a subject travels by."""
        head = subject.split("/")[1 : 1 + self._levels]
        return f"{self._connection.name} /{'/'.join(head)}"

    # Subscribing.

    def add(self, pattern: str) -> None:
        """Want what matches a pattern, once more."""
        with self._lock:
            self._wanted[pattern] += 1
            self._ask()

    def remove(self, pattern: str) -> None:
        """Want it once less."""
        with self._lock:
            self._wanted[pattern] -= 1
            if not self._wanted[pattern]:
                del self._wanted[pattern]
            with suppress(ClosedError):
                self._ask()

    def _ask(self) -> None:
        """Subscribe to what is wanted now, and to nothing else."""
        wanted: dict[str, list[str]] = {}
        for pattern in self._wanted:
            head = pattern.split("/")[1 : 1 + self._levels]
            is_wild = any(level in _WILDCARDS for level in head)
            wanted.setdefault("" if is_wild else self.service_of(pattern), []).append(pattern)
        asked = {name: unite([tuple(some)]) for name, some in wanted.items()}
        if asked.get("") == ():
            asked[""] = (_EVERYTHING,)
        # What is new comes first, so that nothing is wanted by nobody while patterns change over.
        for name in (*asked, *(self._asked.keys() - asked.keys())):
            if self._asked.get(name) != asked.get(name):
                self._ask_one(name, asked.get(name))
        self._asked = asked

    def _ask_one(self, name: str, patterns: tuple[str, ...] | None) -> None:
        call, machine = self._driver.call, self._machine
        if not name:
            call(machine.want_everywhere, patterns or ())
        elif patterns is None:
            call(machine.unsubscribe, name)
        else:
            call(machine.subscribe, name, flags=NO_LOCAL, order=FIFO, patterns=patterns)

    def take(self, found: Delivered) -> None:
        """Hand out what came, as the channel hands out everything."""
        if found.key != service_key(self.service_of(found.subject)):
            return  # Of a service that has subjects of its own.
        topic = self._topics[found.origin, found.incarnation, found.subject]
        times = (0,) * len(found.payloads)
        passage = make_served(SERVICES, -1, 0, self.service_of(found.subject), found.epoch)
        delivery = Delivery(topic, found.sequence, found.payloads, times, time_ns(), passage)
        driver = self._connection.driver
        with driver.lock:
            driver.dispatcher.put([delivery], [])
        driver.dispatcher.run()

    # Publishing.

    def publishing(self, publisher: "Publisher") -> Callable[..., int]:
        """Make what `publish` of a publisher is: to this node by the core, to others by services.

        It returns how many receivers the manager told of last.
        """
        service = self._services.open(self.service_of(publisher.subject))
        lane = service.lane_of(publisher.subject)
        publisher.counted = lambda: lane.receivers
        self._driver.call(self._machine.looking.ask_receivers, lane)

        def publish(payload: Any, *, flush: bool = False, time_ns: int | None = None) -> int:
            data = check_payload(publisher.make_bytes(payload))
            own = publisher.publish_own(data, time_ns, lambda: service.publish_plain(lane, data))
            return own + lane.receivers

        return publish

    def wait_for_receivers(
        self, publisher: "Publisher", count: int, timeout_s: float | None
    ) -> bool:
        """Wait until the manager tells of so many; it is asked again and again."""
        lane = self._services.open(self.service_of(publisher.subject)).lane_of(publisher.subject)
        end_s = None if timeout_s is None else monotonic() + timeout_s
        while lane.receivers < count:
            left_s = _ASK_AGAIN_S if end_s is None else min(_ASK_AGAIN_S, end_s - monotonic())
            if left_s <= 0 or self._driver.closed_reason is not None:
                return False
            self._driver.call(self._machine.looking.ask_receivers, lane)
            self._driver.wait(lambda: lane.receivers >= count, left_s)
        return True

    def flush(self, timeout_s: float | None) -> bool:
        """Wait until managers have taken everything."""
        return self._driver.wait(lambda: self._machine.publishing.is_settled, timeout_s)


def _make_topic(origin: bytes, incarnation: int, subject: str) -> BareTopic:
    return BareTopic(subject, Source("", origin, incarnation))
