"""What the loop serves: the sockets of a channel, its pipes, the services of a node."""

from typing import Protocol


class Attachment(Protocol):
    """What a node gives the loop, one per channel; compared by identity."""

    is_apart: bool
    """What it does moves its own deadline alone, unless it wakes the loop."""
    has_moved: bool
    """Whether the last look may have moved it; asked of one that is apart."""

    def filenos(self) -> list[int]:
        """Name the descriptors to wait for; asked once, when attaching."""

    def readable(self, now: int) -> None:
        """Read: at least one descriptor is readable or has failed."""

    def look(self, now: int) -> bool:
        """Read, though nobody said that there is something; False: there was nothing."""

    def writable(self, now: int) -> None:
        """Go on sending: a descriptor given to `watch_writable` takes data again."""

    def advance(self, now: int) -> None:
        """Do what is due: the deadline has come."""

    def deadline(self) -> int | None:
        """Say when `advance` shall be called next, in nanoseconds of the monotonic clock."""

    def starved(self, late_ms: float) -> None:
        """Hear that the thread ran this late; at most once a second."""

    def forked(self) -> None:
        """Close descriptors and refuse everything: this is a forked child.

        Take no lock: the thread that holds it may not exist here.
        """

    def exiting(self) -> None:
        """Close, in bounded time: the interpreter ends."""
