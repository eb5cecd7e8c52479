"""A disk on which a process dies: at a chosen step, and from then on it does nothing any more."""

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

# How many steps lie between two crashes that are tried: every one in a soak, else every third.
STRIDE = 1 if os.environ.get("HUBBUB_SOAK") == "1" else 3
_STEPS = ("fsync", "rename", "replace", "unlink", "mkdir", "rmdir")


class Died(BaseException):
    """The process was killed here."""


class DyingDisk:
    """Inside `with`, let the first `steps` changes of names and syncs pass; the next one kills.

    `before` is called before each step, to see what others see then. What an unwinding process
    would tidy up, a killed one does not: nothing passes after that.
    """

    def __init__(self, steps: int, before: Callable[[], object] | None = None) -> None:
        self._left = steps
        self._before = before
        self._is_looking = False
        self.is_alive = True
        self._real: dict[str, Callable[..., Any]] = {}

    def __enter__(self) -> Self:
        for name in _STEPS:
            self._real[name] = getattr(os, name)
            setattr(os, name, self._watch(self._real[name]))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        for name, real in self._real.items():
            setattr(os, name, real)
        return isinstance(error, Died)

    def _look(self) -> None:
        """Let somebody look at the disk between two steps."""
        if self._before is not None and not self._is_looking:
            self._is_looking = True
            self._before()
            self._is_looking = False

    def _watch(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            if not self._left:
                self.is_alive = False
                raise Died
            self._left -= 1
            self._look()
            return real(*arguments, **options)

        return step
