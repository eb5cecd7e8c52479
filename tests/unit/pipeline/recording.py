"""A recording made by hand: journal segments, Parquet files, and the rows that are in them.

`Recording` writes what a recorder would write, one record at a time, and remembers each row, so
that whoever reads can be compared with a plain list.
"""

import os
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from hubbub.store import records
from hubbub.store.compact import compact, sweep, tidying
from hubbub.store.convert import convert_segment
from hubbub.store.identity import Identity, encode_identity, identity_path
from hubbub.store.journal import segment_path, segments
from hubbub.store.layout import data_files
from hubbub.store.manifest import read_manifest, readable, write_manifest
from hubbub.store.records import Begin, End, Topic

START_NS = 1_794_816_000_000_000_000  # 2026-11-16 08:00 UTC
RECORDER = "ab" * 16
_ROOM_BYTES = 1 << 16  # Of zeros behind what is written, as in a segment made beforehand.


class Recording:
    """A store that grows as a test says."""

    def __init__(self, path: Path, seed: int = 0, recorder: str = RECORDER) -> None:
        self.path = path
        self.random = Random(seed)
        self.recorder = recorder
        self.messages: list[tuple[int, str, bytes]] = []  # Offset, subject, payload.
        self.rows: list[tuple[int, str]] = []  # Number, table.
        self.pruned = 0  # Offsets before it are gone.
        self.now_ns = START_NS
        self._sequences: dict[str, int] = {}
        self._segment = -1
        self._position = 0
        path.mkdir(parents=True, exist_ok=True)
        identity_path(path).write_bytes(encode_identity(Identity(recorder, START_NS)))
        (path / "journal").mkdir(exist_ok=True)
        self.roll()

    @property
    def numbers(self) -> int:
        """Return the number of the next row of another table."""
        return len(self.rows)

    def add(self, subject: str, *payloads: bytes) -> None:
        """Record messages of one topic."""
        first = self._sequences.get(subject, 1)
        self._sequences[subject] = first + len(payloads)
        offset = len(self.messages)
        self.messages += [(offset + n, subject, one) for n, one in enumerate(payloads)]
        label = records.encode_label(Topic(subject, "node", b"n" * 12, 7, "", 0), "local")
        times = [self.now_ns - 1000] * len(payloads)
        body = records.encode_run(label, offset, first, payloads, times, self.now_ns)
        self._append(records.RUN, body)

    def add_row(self, table: str, **values: Any) -> None:
        """Record a row of another table."""
        number = self.numbers
        self.rows.append((number, table))
        body = records.encode_row(number, table, {"time_ns": self.now_ns, **values})
        self._append(records.ROW, body)

    def tear(self) -> None:
        """Begin a record that will never end."""
        with self._path.open("r+b") as file:
            file.seek(self._position)
            whole = records.encode_record(
                records.ROW, [b"x" * 100], self._segment, self._position, 0
            )
            file.write(b"".join(whole)[:60])

    def roll(self) -> None:
        """Close the segment and begin another."""
        if self._segment >= 0:
            body = records.encode_end(End(len(self.messages), self.numbers))
            self._append(records.END, body)
            os.truncate(self._path, self._position)
        self._segment += 1
        self._position = 0
        begin = Begin(
            bytes.fromhex(self.recorder), self._segment, len(self.messages), self.numbers,
            self.now_ns,
        )  # fmt: skip
        self._append(records.BEGIN, records.encode_begin(begin))

    def close(self) -> None:
        """Close the last segment, as a recorder that ends does."""
        self.roll()
        self._path.unlink()

    def convert(self, count: int = 1) -> None:
        """Turn the oldest closed segments into Parquet."""
        closed = [path for path in segments(self.path) if path != self._path]
        for path in closed[:count]:
            convert_segment(self.path, path)

    def prune(self) -> None:
        """Remove the oldest file of messages, and what it was made of."""
        files = readable(self.path, "messages")
        if files:
            end = files[0].last + 1
            manifest = read_manifest(self.path)
            kept = [entry for entry in manifest.entries if entry.name != files[0].path.name]
            write_manifest(self.path, msgspec.structs.replace(manifest, entries=kept))
            for file in [files[0], *data_files(self.path, "messages")]:
                if file.last < end:
                    file.path.unlink(missing_ok=True)
            self.pruned = end

    def compact(self) -> None:
        """Put small files together, and remove them at once."""
        later_ns = self.now_ns + 10**15
        with tidying(self.path) as is_ours:
            assert is_ours
            list(compact(self.path, later_ns))
            sweep(self.path, later_ns, after_ns=0)

    def act(self) -> None:
        """Do something at random, in small steps of time that sometimes reach the next hour."""
        random = self.random
        self.now_ns += random.choice([1_000, 10**9, 10**9, 600 * 10**9])
        kind = random.choice(KINDS)
        if kind == "add":
            count = random.randint(1, 9)
            self.add(random.choice(SUBJECTS), *(random.randbytes(5) for _ in range(count)))
        elif kind == "row":
            table = random.choice(["events", "counters", "announcements"])
            self.add_row(table, **({"name": "x", "value": 1} if table == "counters" else {}))
        elif kind == "roll":
            self.roll()
        elif kind == "compact":
            self.compact()
        else:
            self.convert(random.randint(1, 3))

    @property
    def _path(self) -> Path:
        return segment_path(self.path, self._segment)

    def _append(self, kind: int, body: list[bytes]) -> None:
        record = records.encode_record(kind, body, self._segment + 1000, self._position, 0)
        data = b"".join(record)
        with self._path.open("r+b" if self._position else "w+b") as file:
            file.seek(self._position)
            file.write(data)
            if file.seek(0, os.SEEK_END) < self._position + len(data) + _ROOM_BYTES:
                file.truncate(self._position + len(data) + _ROOM_BYTES)
        self._position += len(data)


KINDS = ["add"] * 8 + ["row"] * 2 + ["roll"] * 3 + ["convert"] * 2 + ["compact"]
SUBJECTS = ["/a/x", "/a/y", "/b"]
