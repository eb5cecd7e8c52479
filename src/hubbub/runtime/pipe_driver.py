"""HOT. The pipes of a channel as an attachment of the loop, beside the one of its sockets."""

from typing import TYPE_CHECKING

from hubbub.links.local import LocalLink

if TYPE_CHECKING:
    from hubbub.runtime.driver import Driver


class PipeDriver:
    """Reads the pipes of a channel; whatever else is to be done, its driver does."""

    def __init__(self, driver: "Driver", link: LocalLink) -> None:
        self.link = link
        self._driver = driver

    def filenos(self) -> list[int]:
        """Name the one descriptor that stands for all pipes."""
        return [self.link.fileno()]

    def readable(self, now: int) -> None:
        """Take in what has come."""
        self._driver.take_in_pipes(now, self.link.receive())

    def look(self, now: int) -> bool:
        """Take in what may have come where something came last; False: nothing had."""
        received = self.link.look()
        if not received:
            return False
        self._driver.take_in_pipes(now, received)
        return True

    def writable(self, now: int) -> None:
        """Do nothing: pipes that take data again are readable here."""

    def advance(self, now: int) -> None:
        """Do what is due with what is shared."""
        self._driver.advance_pipes(now)

    def deadline(self) -> int | None:
        """Say when that is; a lock is not worth an exact answer."""
        depot = self._driver.depot
        return None if depot is None else depot.deadline()

    def starved(self, late_ms: float) -> None:
        """Leave the report to the driver."""

    def forked(self) -> None:
        """Leave it to the driver."""

    def exiting(self) -> None:
        """Leave it to the driver."""
