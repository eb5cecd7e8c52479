"""HOT. The pipes of a channel as attachments of the loop, beside the one of its sockets.

Each reads the pipes of one link and tells the core which of them came and went; the one of the
local link also looks after what is shared through them (depot.py). The core, its lock and all
sending are the driver's.
"""

import os
import time
from typing import TYPE_CHECKING, Any, Final

from hubbub.events import PeerRefused
from hubbub.limits import LEAD_PATIENCE, MS, STORE_PATIENCE, STORE_WARM_PATIENCE, US
from hubbub.links import arena
from hubbub.links.depot import Depot
from hubbub.links.inlet import Received
from hubbub.links.loans import Draft
from hubbub.links.local import LocalLink
from hubbub.links.pipes import PipeLink
from hubbub.links.tcp import TcpLink
from hubbub.protocol.burst import Pipes
from hubbub.protocol.framing import Framer
from hubbub.runtime.ownership import owns

# A reader that gets on gives back within that time: to sleep, and to wake the I/O thread that does
# the rest meanwhile, would take longer.
_LOOK_FOR_NS: Final = 100 * US
_LOOK_AGAIN_S: Final = 50e-6

if TYPE_CHECKING:
    from hubbub.runtime.driver import Driver


class PipeDriver:
    """Drives the pipes of one link of one channel."""

    is_apart = False
    has_moved = True

    def __init__(self, driver: "Driver", link: PipeLink[Any]) -> None:
        self.link = link
        self._driver = driver

    # Called by the I/O thread.

    def filenos(self) -> list[int]:
        """Name the one descriptor that stands for all pipes."""
        return [self.link.fileno()]

    def readable(self, now: int) -> None:
        """Take in what has come."""
        self._take_in(now, self.link.receive())

    def look(self, now: int) -> bool:
        """Take in what may have come where something came last; False: nothing had."""
        received = self.link.look()
        if not received:
            return False
        self._take_in(now, received)
        return True

    def writable(self, now: int) -> None:
        """Do nothing: pipes that take data again are readable here."""

    def advance(self, now: int) -> None:
        """Do what is due."""
        with self._driver.lock:
            self.link.advance(now)

    def deadline(self) -> int | None:
        """Say when that is; a lock is not worth an exact answer."""
        return self.link.deadline()

    def starved(self, late_ms: float) -> None:
        """Leave the report to the driver."""

    def forked(self) -> None:
        """Leave it to the driver."""

    def exiting(self) -> None:
        """Leave it to the driver."""

    def _take_in(self, now: int, received: list[Received]) -> None:
        """Take in what came by pipes, and which of them came and went."""
        link, driver = self.link, self._driver
        if link.opened or link.has_room or link.has_ended or self._has_notes():
            with driver.lock:
                while link.opened:
                    self._open_pipe(now, link.opened.popleft())
                if link.has_room:
                    link.flush()
                link.sweep()
                self._look_after(now)
        driver.take_in(now, received)
        while link.closed:
            self._close_pipe(now, *link.closed.popleft())

    def _has_notes(self) -> bool:
        """Tell whether there is anything to look after."""
        return False

    def _look_after(self, now: int) -> None:
        """Do what comes beside frames; under the lock."""

    def _open_pipe(self, now: int, pipe: Pipes) -> None:
        self._driver.core.open_pipe(now, pipe[0], link=self.link.name, place=pipe.place)

    def _close_pipe(self, now: int, key: bytes, is_dead: bool) -> None:
        """End with a pipe; where another has taken its place meanwhile, begin with that one."""
        driver = self._driver
        if is_dead:
            # What it sent to the group may still wait to be read, its goodbye among it.
            while received := driver.link.receive():
                driver.take_in(now, received)
        now = max(now, time.monotonic_ns())  # What was just taken in must not lie ahead.
        with driver.lock:
            self._note_closed(key, is_dead=is_dead)
            driver.core.close_pipe(now, key, is_dead=is_dead, link=self.link.name)
            if (again := self.link.source_of(key)) is not None:
                self._open_pipe(now, again)
            driver.serve(now)
        driver.after()

    def _note_closed(self, key: bytes, *, is_dead: bool) -> None:
        """Let go of what belongs to a pipe that has ended; under the lock."""

    # Called by anybody.

    def poll(self) -> None:
        """Once a second, under the lock: look who else is here, and who is gone."""
        self.link.look_around()

    def close(self) -> None:
        """Close every pipe."""
        self.link.close()


class TcpDriver(PipeDriver):
    """Drives the pipes to elsewhere."""

    link: TcpLink

    def _has_notes(self) -> bool:
        return bool(self.link.refusals.untold)

    def _look_after(self, now: int) -> None:
        """Tell who was refused; under the lock."""
        core, untold = self._driver.core, self.link.refusals.untold
        while untold:
            core.events.append(PeerRefused(core.endpoint.channel, *untold.popleft()))


class LocalDriver(PipeDriver):
    """Drives the pipes of this host, and the depot where there is shared memory."""

    link: LocalLink

    def __init__(self, driver: "Driver", link: LocalLink) -> None:
        super().__init__(driver, link)
        self.depot = self._open_depot() if arena.is_supported() else None
        self._behind: frozenset[bytes] = frozenset()  # As the core knows it.

    def _open_depot(self) -> Depot:
        """Let large payloads go by reference."""
        depot = Depot(self.link, time.monotonic_ns)
        depot.on_look = self._look_soon
        core = self._driver.core
        core.endpoint.resolve = depot.resolve
        core.endpoint.behind = depot.stuck
        for sender in core.outgoing.senders.values():
            sender.framer.refer = depot.refer
            sender.framer.is_read = depot.is_read
        return depot

    def _look_soon(self) -> None:
        """Have the depot's deadline looked at; who publishes will mostly do that itself at once."""
        self._driver.loop.wake_by(time.monotonic_ns() + LEAD_PATIENCE + MS)

    def hand_on(self) -> None:
        """Hand on by reference what came by reference to another node of this process."""
        if self.depot is not None:
            with self._driver.lock:
                self.depot.hand_on()

    def advance(self, now: int) -> None:
        """Do what is due with what is shared."""
        if self.depot is not None:
            driver = self._driver
            with driver.lock:
                self.depot.advance(now)
                self._look_after(now)
            driver.after()

    def deadline(self) -> int | None:
        """Say when that is."""
        return None if self.depot is None else self.depot.deadline()

    def _has_notes(self) -> bool:
        return bool(self.link.notes)

    def _look_after(self, now: int) -> None:
        """Take and give notes; under the lock."""
        depot, notes = self.depot, self.link.notes
        while notes:
            note = notes.popleft()
            if depot is not None:
                depot.take(note)
            elif note.fileno is not None:
                os.close(note.fileno)
        if depot is None:
            return
        if depot.stuck != self._behind:
            self._behind = frozenset(depot.stuck)
            self._driver.core.reroute(now)
            self._driver.serve(now)

    def _note_closed(self, key: bytes, *, is_dead: bool) -> None:
        if self.depot is not None:
            self.depot.pipe_closed(key, is_dead=is_dead)

    def wait_for_depot(self, framer: Framer) -> None:
        """Wait for readers that get on, or hold all that can be shared: then messages are cut."""
        depot, driver, route = self.depot, self._driver, framer.route
        if depot is None or route is None or not framer.is_near or depot.is_roomy:
            return
        if driver.loop.is_loop_thread():
            return
        now = begin_ns = time.monotonic_ns()
        if framer.cells:
            driver.flush_all(framer)  # Readers cannot give back what they never got.
        while driver.closed_reason is None:
            with driver.lock:
                if self.has_depot_room(framer, now - begin_ns):
                    return
            # No reader wakes us: it gives back without a system call.
            if now - begin_ns > _LOOK_FOR_NS:
                driver.publishing_paused()
                driver.loop.need()
                time.sleep(_LOOK_AGAIN_S)
            now = time.monotonic_ns()

    def has_depot_room(self, framer: Framer, waited_ns: int) -> bool:
        """Tell whether a large message may be shared, or has waited long enough; under the lock."""
        depot, route = self.depot, framer.route
        if depot is None or route is None or not framer.is_near or depot.has_room(route):
            return True
        if waited_ns < (2 * STORE_PATIENCE if depot.is_full else STORE_WARM_PATIENCE):
            return False
        depot.go_on()
        return True

    def lend(self, framer: Framer, size_bytes: int) -> Draft | None:
        """Lend memory that all receivers of a stream share; None: they do not, or it is small."""
        depot, route, lock = self.depot, framer.route, self._driver.lock
        if depot is None or route is None or not framer.is_near or not framer.reference_bytes:
            return None
        if size_bytes <= framer.message_bytes_max or owns(lock):
            return None
        with lock:
            return depot.lend(size_bytes, route)

    def poll(self) -> None:
        """Look who else is here, and let go of what was shared by those who are gone."""
        super().poll()
        if self.depot is not None:
            self.depot.forget_others(self._driver.core.peers)

    def close(self) -> None:
        """Close every pipe, and let go of what is shared."""
        super().close()
        if self.depot is not None:
            self.depot.close()
