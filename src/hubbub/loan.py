"""What an application holds in the hand to write a large message where its readers will find it.

Where every receiver is on this host and can map our memory, that is a slot of the arena, and to
publish it copies nothing. Everywhere else it is ordinary memory, and to publish it copies once, as
it does of any buffer. Nothing else differs.

Once published nothing may change it: readers look at the same memory, and later the slot belongs to
another message. So a loan that an array or a slice still leads to is refused, instead of trusting
that nobody writes through it.
"""

import os
import sys
from typing import Any, Self

from hubbub.errors import ClosedError, PayloadError
from hubbub.links.loans import Draft

_OUR_REFERENCES = 2  # Ours, and the argument of `getrefcount`.


class Loan:
    """Memory to write one message into, then `publisher.publish(loan)`.

    with publisher.loan(1 << 20) as loan:
        camera.read_into(loan.view)
        publisher.publish(loan)

    At the end of the block a loan that was not published is given back, as by `cancel()`. One that
    is forgotten goes with the last reference to it.
    """

    def __init__(self, memory: Draft | bytearray, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.is_shared = isinstance(memory, Draft)
        """Whether it lies where the receivers read it, so that nothing is copied."""
        self._memory: Draft | bytearray | None = memory
        self._view = memory.view() if isinstance(memory, Draft) else memoryview(memory)
        self._payload: bytes | memoryview | None = None
        self._over = ""  # Why it can no longer be used.
        self._pid = os.getpid()

    @property
    def view(self) -> memoryview:
        """Return the memory, to be written: a memoryview, which `numpy.frombuffer` takes."""
        self._refuse_if_over()
        if self._payload is not None:
            raise ClosedError("this loan was about to be published: publish it again, or cancel it")
        return self._view

    def __len__(self) -> int:
        """Return its size in bytes."""
        return self.size_bytes

    def cancel(self) -> None:
        """Give the memory back unpublished; of a loan that is over it does nothing."""
        if not self._over:
            self._end("was cancelled")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_exception: object) -> None:
        """Give it back if it was not published; the exception goes on."""
        self.cancel()

    def __repr__(self) -> str:
        where = "shared" if self.is_shared else "ordinary"
        over = f", which {self._over}" if self._over else ""
        return f"<Loan of {self.size_bytes} bytes of {where} memory{over}>"

    # Called by publishers.

    def seal(self) -> bytes | memoryview:
        """Return what was written, as a payload that nobody can change any more."""
        self._refuse_if_over()
        if self._payload is None:
            self._release_view()
            memory = self._memory
            assert memory is not None
            self._payload = memory.finish() if isinstance(memory, Draft) else bytes(memory)
        return self._payload

    def spend(self) -> None:
        """End: it was published."""
        self._end("was published already")

    def _release_view(self) -> None:
        """Let go of the view; raise if anything else leads to the memory."""
        try:
            self._view.release()
        except BufferError:
            is_held = True
        else:
            is_held = sys.getrefcount(self._memory) > _OUR_REFERENCES
        if is_held:
            self._restore_view()
            raise PayloadError(
                f"an array or slice of this loan of {self.size_bytes} bytes is still held, and"
                " could change the message later: delete it before you publish"
            )

    def _restore_view(self) -> None:
        memory = self._memory
        assert memory is not None
        self._view = memory.view() if isinstance(memory, Draft) else memoryview(memory)

    def _end(self, why: str) -> None:
        self._over = why
        self._payload = self._memory = None
        view: Any = self._view
        self._view = memoryview(b"")
        try:
            view.release()
        except BufferError:
            return  # An array keeps the memory, and so the slot, until it goes.

    def _refuse_if_over(self) -> None:
        if self._pid != os.getpid():
            raise ClosedError("this loan belongs to the parent of this forked process")
        if self._over:
            raise ClosedError(f"this loan {self._over}: ask for another one")
