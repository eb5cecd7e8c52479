"""What comes by the group of the services, for the driver that has the machine.

It is an attachment of its own, so that reading single datagrams costs nothing more where there is a
group. What it brings moves the deadline of that driver, which therefore is its own.
"""

from typing import TYPE_CHECKING

from hubbub.links.group_ear import GroupEar

if TYPE_CHECKING:
    from hubbub.runtime.service_driver import ServiceDriver


class GroupListener:
    """Listens to the group for the services of one node."""

    is_apart = True
    has_moved = True

    def __init__(self, driver: "ServiceDriver", ear: GroupEar) -> None:
        self._driver = driver
        self._ear = ear

    def filenos(self) -> list[int]:
        """Name the socket."""
        return [self._ear.fileno()]

    def readable(self, now: int) -> None:
        """Take in what has come."""
        self._driver.take_group(self._ear.receive())

    def look(self, now: int) -> bool:
        """Take in what may have come; False: nothing had."""
        received = self._ear.receive()
        if received:
            self._driver.take_group(received)
        return bool(received)

    def writable(self, now: int) -> None:
        """Leave it: nothing is sent from here."""

    def advance(self, now: int) -> None:
        """Do what is due for the driver."""
        self._driver.advance(now)

    def deadline(self) -> int | None:
        """Say when that is: what was heard may be due to be acknowledged."""
        return self._driver.deadline()

    def starved(self, late_ms: float) -> None:
        """Leave it: the driver is told, too."""

    def forked(self) -> None:
        """Let go of the socket: this is a forked child."""
        self._ear.close()

    def exiting(self) -> None:
        """Leave it to the driver, which ends this as well."""

    def close(self) -> None:
        """Listen no longer."""
        self._driver.loop.detach(self)
        self._ear.close()
