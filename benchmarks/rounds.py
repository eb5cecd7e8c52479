"""Measures every cell once a round, one peer after the other, and says how far it is."""

import importlib.metadata
import sys
import time
from collections.abc import Sequence

from benchmarks import pair, peers, report
from benchmarks.course import Course
from benchmarks.figures import Book

# A cell that failed this often is not tried again: each try may take half a minute.
FAILURES_MAX = 2


def run(course: Course, book: Book) -> bool:
    """Measure all of it; False: it was interrupted, and the book has what there is."""
    try:
        _run(course, book)
    except KeyboardInterrupt:
        say("interrupted\n")
        return False
    say("done\n")
    return True


def _run(course: Course, book: Book) -> None:
    rows = look_around(book, course.rows)
    cells = [(k, s, row) for k in course.kinds for s in course.sizes for row in rows]
    started = time.monotonic()
    for number in range(course.rounds):
        for index, (kind, size, row) in enumerate(cells):
            done = (number * len(cells) + index) / (course.rounds * len(cells))
            cell = f"{kind} {report.size_text(size)} {row}"
            say(f"{done:4.0%}, {remaining(started, done)}, round {number + 1}: {cell}")
            if len(book.failures.get((row, kind, size), ())) < FAILURES_MAX:
                measure(book, course, row, kind, size)


def look_around(book: Book, rows: Sequence[str]) -> list[str]:
    """Find out which peers are here; the others stay in the table with the reason."""
    here = []
    for row in rows:
        try:
            adapter = peers.load(row)
            importlib.metadata.version(adapter.distribution)
            with adapter.beside():
                pass
        except Exception as error:
            book.unavailable[row] = f"{type(error).__name__}: {error}"
            continue
        here.append(row)
        if adapter.spins:
            book.spinning.add(row)
    return here


def measure(book: Book, course: Course, row: str, kind: str, size: int) -> None:
    """Measure one cell once."""
    try:
        subscribers = 1 if kind == "latency" else course.subscribers
        with peers.load(row).beside():
            outcome = pair.measure(row, kind, size, course.seconds, subscribers, course.hosts)
        book.add(row, kind, size, outcome)
    except pair.PairFailed as failure:
        book.fail(row, kind, size, str(failure))
        say(f"{row} {kind} {report.size_text(size)}: {failure}\n")


def remaining(started: float, done: float) -> str:
    """Guess the minutes left from what has been done so far."""
    if not done:
        return "a while left"
    return f"{(time.monotonic() - started) * (1 - done) / done / 60:.0f} min left"


def say(text: str) -> None:
    """Show progress beside the tables, which go to stdout; a terminal keeps only the last line."""
    is_terminal = sys.stderr.isatty()
    sys.stderr.write(f"\r\x1b[K{text}" if is_terminal else f"{text.rstrip()}\n")
    sys.stderr.flush()
