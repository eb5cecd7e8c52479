"""What tests of depots share: one end of a pipe, with what it shares."""

from pathlib import Path

from hubbub.links.depot import Depot
from hubbub.links.local import LocalLink


class End:
    """A depot on its pipes, under a clock that a test moves."""

    def __init__(self, key: bytes, directory: Path) -> None:
        self.now = 1
        self.key = key
        self.link = LocalLink(key, 7, "channel", directory)
        self.depot = Depot(self.link, lambda: self.now)

    def serve(self) -> None:
        """Take in what has come by the pipes."""
        self.link.receive()
        while self.link.notes:
            self.depot.take(self.link.notes.popleft())
        self.depot.collect()

    def close(self) -> None:
        """End both."""
        self.depot.close()
        self.link.close()
