"""The rows of a task, kept until all of them are known: who publishes them is named by them.

A task that is run again is the same task only if it has the same rows in the same order. Then its
node has the same id, and receivers take its rows once. If they differ (the plan is not
deterministic, or a batch was cut otherwise after a restart) it is another task, and what they
have in common is published again: a row too many is better than a row that is taken for a repeat.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from tempfile import SpooledTemporaryFile
from typing import IO, Any, cast

import pyarrow as pa

from hubbub.limits import SINK_MEMORY_BYTES


class Spool:
    """Rows of one task, in memory or, beyond a bound, in a file that nobody else sees."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._file = cast(IO[bytes], SpooledTemporaryFile(SINK_MEMORY_BYTES))  # noqa: SIM115
        self._digest = blake2b(digest_size=16)
        self.rows = 0
        writer: Any = None
        for batch in batches:
            if writer is None:
                writer = pa.ipc.new_stream(self._file, batch.schema)
            writer.write_batch(batch)
            self.rows += batch.num_rows
            self._note(batch)
        if writer is not None:
            writer.close()

    def _note(self, batch: pa.RecordBatch) -> None:
        """Take rows into the digest, however they are cut into batches."""
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            self._digest.update(repr(row).encode())

    @property
    def fingerprint(self) -> str:
        """Return what the same rows in the same order have, and no others."""
        return self._digest.hexdigest()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows."""
        if self.rows:
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)

    def close(self) -> None:
        """Let go of the rows."""
        self._file.close()
