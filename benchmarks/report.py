"""What a run leaves: tables in Markdown that also read well as plain text, JSON, the README."""

import datetime
import importlib.metadata
import json
import os
import platform
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.course import Course
from benchmarks.figures import MEASURES, Book, Figure

README = Path(__file__).parent.parent / "README.md"
# From this size on bytes per second say more than messages per second.
BYTES_FROM = 16 << 10
SPINNING_NOTE = (
    " A row with * never sleeps and costs a core a side also at rest; it is never the best peer."
)
# Less than this is not worth a word in a cell.
LOSS_SHOWN_FROM = 0.0005
TITLES = {
    "read": "Throughput, the subscriber reads every cache line of each payload",
    "unread": "Throughput, the subscriber only counts",
    "round trip": "Round trip, p50 / p99 in µs",
    "fan-out": (
        "Fan-out, messages a second that one publisher delivers to {subscribers} subscriber "
        "processes together, each reading every cache line of each payload"
    ),
    "veth": (
        "Between two hosts (namespaces, Ethernet frames of 1500 bytes), "
        "the subscriber reads every cache line of each payload"
    ),
}
# Measures of which the report counts every loss.
COUNTED_MEASURES = ("fan-out", "veth")


def size_text(size_bytes: int) -> str:
    """Write 65536 as 64 KiB."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"


def rate_text(messages_per_second: float, size_bytes: int) -> str:
    """Write a rate in the unit that suits the size."""
    if size_bytes >= BYTES_FROM:
        return f"{messages_per_second * size_bytes / 1e9:.2f} GB/s"
    if messages_per_second >= 1e6:
        return f"{messages_per_second / 1e6:.2f} M/s"
    return f"{messages_per_second / 1e3:.0f} k/s"


def value_text(figure: Figure, measure: str, size_bytes: int) -> str:
    """Write what was measured in the unit of its table."""
    rate = figure.median
    if measure == "round trip":
        return f"{rate:.0f} / {figure.p99_us:.0f}"
    if measure == "veth":
        return f"{rate * size_bytes / 1e6:.0f} MB/s"
    if measure == "fan-out" and size_bytes >= BYTES_FROM:
        return f"{rate / 1e3:.1f} k/s, {rate_text(rate, size_bytes)}"
    return rate_text(rate, size_bytes)


def render(book: Book, rows: Sequence[str], sizes: Sequence[int], kinds: Sequence[str]) -> str:
    """Write one table a measure, and the notes that belong to them."""
    notes: list[str] = []
    parts = [
        f"**{TITLES[measure].format(subscribers=book.subscribers)}**\n\n"
        + _table(book, measure, rows, sizes, notes)
        for measure, kind in MEASURES.items()
        if kind in kinds
    ]
    parts.append(
        "Median of the rounds, ± half the distance of the quartiles, and the ratio to the best "
        f"peer (1.00x{'; in round trips less is better' if 'latency' in kinds else ''})."
        + (SPINNING_NOTE if book.spinning else "")
    )
    parts += notes + _shortfalls(book) + _losses(book, rows, sizes, kinds)
    return "\n\n".join(parts) + "\n"


def _table(
    book: Book, measure: str, rows: Sequence[str], sizes: Sequence[int], notes: list[str]
) -> str:
    best = {size: book.best_peer(rows, measure, size) for size in sizes}
    lines = [["", *map(size_text, sizes)]]
    for row in rows:
        name = row + (" *" if row in book.spinning else "")
        cells = [
            _cell(book.figure(row, measure, size), measure, size, best[size])
            or _absence(book, row, measure, size, notes)
            for size in sizes
        ]
        lines.append([name, *cells])
    widths = [max(len(line[column]) for line in lines) for column in range(len(sizes) + 1)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)


def _cell(figure: Figure | None, measure: str, size_bytes: int, best: float | None) -> str:
    if not figure:
        return ""
    parts = [value_text(figure, measure, size_bytes), f"±{figure.spread:.0%}"]
    if best:
        parts.append(f"{figure.median / best:.2f}x")
    if figure.lost >= LOSS_SHOWN_FROM:
        parts.append(f"({figure.lost:.1%} lost)")
    return " ".join(parts)


def _absence(book: Book, row: str, measure: str, size_bytes: int, notes: list[str]) -> str:
    """Say in the cell that there is no figure, and once below the tables why."""
    reasons = book.failures.get((row, MEASURES[measure], size_bytes))
    if row in book.unavailable:
        word, reason = "not available", book.unavailable[row]
    elif reasons:
        word, reason = "failed", reasons[-1]
    else:
        return "not reached"
    note = f"{row}, {word}: {reason}"
    if note not in notes:
        notes.append(note)
    return word


def _shortfalls(book: Book) -> list[str]:
    """Name the cells whose figure rests on fewer rounds than there were."""
    return [
        f"{row}, {kind} {size_text(size)}: {len(reasons)} rounds failed, last: {reasons[-1]}"
        for (row, kind, size), reasons in book.failures.items()
        if (row, kind, size) in book.outcomes
    ]


def _losses(
    book: Book, rows: Sequence[str], sizes: Sequence[int], kinds: Sequence[str]
) -> list[str]:
    """Count what did not arrive, to the message, where that is part of what is measured."""
    figures = {
        f"{row}, {size_text(size)}": figure
        for measure in COUNTED_MEASURES
        if MEASURES[measure] in kinds
        for size in sizes
        for row in rows
        if (figure := book.figure(row, measure, size))
    }
    lost = [
        f"{cell}: {figure.sent - figure.received:,} of {figure.sent:,}"
        for cell, figure in figures.items()
        if figure.received < figure.sent
    ]
    if lost:
        return [f"Deliveries lost in all rounds: {'; '.join(lost)}; nowhere else any."]
    return ["No delivery was lost in any round."] if figures else []


def machine() -> dict[str, Any]:
    """Describe what the figures were measured on."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    model = re.search(r"model name\s*:\s*(.+)", text)
    return {
        "cpu": model[1].strip() if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def heading(command: str, where: str, rounds: int) -> str:
    """Say when, where and how the figures came about."""
    host = machine()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"{today}, {host['cores']} cores of {host['cpu']}, {host['memory_gib']} GiB, "
        f"Linux {host['kernel']}, Python {host['python']}; {where}; "
        f"{rounds} interleaved rounds of `{command}`."
    )


def settings(rows: Sequence[str], book: Book) -> str:
    """List each peer's version and settings."""
    lines = []
    for row in rows:
        if row not in book.unavailable:
            adapter = peers.load(row)
            version = importlib.metadata.version(adapter.distribution)
            lines.append(f"- {row} ({adapter.distribution} {version}): {adapter.settings}")
    return "\n".join(lines) + "\n"


def write_json(
    path: Path, book: Book, rows: Sequence[str], sizes: Sequence[int], about: dict[str, Any]
) -> None:
    """Keep everything: each round's outcome and the figures made of them."""
    summary = [
        {"row": row, "measure": measure, "size_bytes": size, "best_peer": best} | asdict(figure)
        for measure in MEASURES
        for size in sizes
        for best in [book.best_peer(rows, measure, size)]
        for row in rows
        if (figure := book.figure(row, measure, size))
    ]
    outcomes = [
        {"row": row, "kind": kind, "size_bytes": size, "rounds": rounds}
        for (row, kind, size), rounds in book.outcomes.items()
    ]
    failures = [
        {"row": row, "kind": kind, "size_bytes": size, "reasons": reasons}
        for (row, kind, size), reasons in book.failures.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    content = about | {
        "machine": machine(),
        "unavailable": book.unavailable,
        "summary": summary,
        "failures": failures,
        "outcomes": outcomes,
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def compare(name: str, pairs: int, measure: Callable[[bool], float]) -> str:
    """Let runs without and with a disturbance take turns; return a row with what is left."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for number in range(pairs):
        sys.stderr.write(f"{name}: pair {number + 1} of {pairs}\n")
        for is_disturbed, found in rates.items():
            found.append(measure(is_disturbed))
    best, left = (statistics.median(found) for found in rates.values())
    return f"| {name} | {best / 1e3:.0f} k/s | {left / 1e3:.0f} k/s | {left / best:.0%} |"


def write_readme(path: Path, place: str, text: str) -> None:
    """Put the tables between the markers of a place in the README, and touch nothing else."""
    begin, end = f"<!-- {place}:begin -->", f"<!-- {place}:end -->"
    before, begun, rest = path.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise SystemExit(f"{path} has no place for the table: {begin} and {end} are missing")
    path.write_text(f"{before}{begin}\n{text}{end}{after}", encoding="utf-8")


def publish(
    book: Book,
    course: Course,
    *,
    command: str,
    where: str,
    is_whole: bool,
    json_path: Path,
    place: str,
) -> None:
    """Print the tables, keep everything as JSON, and put a whole run at its place, if any."""
    head = heading(command, where, book.rounds)
    tables = render(book, course.rows, course.sizes, course.kinds)
    print(f"{head}\n\n{tables}\n{settings(course.rows, book)}", end="")
    about = {"heading": head, "command": command, "isolation": where, "interrupted": not is_whole}
    write_json(json_path, book, course.rows, course.sizes, about)
    if place and is_whole:
        write_readme(README, place, f"\n{head}\n\n{tables}\n")
