"""A line that tells how far a long command is; only where somebody looks at it."""

import sys
import time
from typing import Any, Self

_REFRESH_S = 0.2
_QUIET_S = 1.0  # What is over sooner needs no progress.


class Progress:
    """Show a bar on stderr while inside `with`, if stderr is a terminal.

    It is drawn by whoever calls `show`, never by a thread of its own: `simulate` forks beside it.
    """

    def __init__(self, total: int | None, label: str = "") -> None:
        self._total = total
        self._label = label
        self._next_s = time.monotonic() + _QUIET_S if sys.stderr.isatty() else float("inf")
        self._bar: Any = None
        self._task: Any = None

    def show_now(self, state: object) -> None:
        """Say what takes long, before it does: nobody will call meanwhile."""
        if self._next_s != float("inf"):
            self._next_s = 0.0
        self.show(0, state)

    def show(self, done: int, state: object, total: int | None = None) -> None:
        """Say how much is done, and what else; cheap enough to be called for every message."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._total = total or self._total
        self._next_s = now_s + _REFRESH_S
        if self._bar is None:
            self._start()
        self._bar.update(
            self._task, completed=done, total=self._total, text=f"{state}{self._label}"
        )
        self._bar.refresh()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=Console(stderr=True), auto_refresh=False, transient=True,
            redirect_stdout=sys.stdout.isatty(),  # Else what goes to a file would go to stderr.
        )  # fmt: skip
        self._task = self._bar.add_task("", total=self._total, text="")
        self._bar.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()
