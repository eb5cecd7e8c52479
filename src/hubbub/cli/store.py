"""`hubbub store`: what a recording holds, whether it is sound, and how to make it smaller."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubbub.cli.options import Json
from hubbub.cli.progress import Progress
from hubbub.cli.quantities import parse_duration, parse_size
from hubbub.cli.screen import UNKNOWN, Column, Screen, table, wrapped, write_until_the_end
from hubbub.cli.session import EXIT_INTERRUPTED
from hubbub.cli.terminal import note, plural, print_json, size
from hubbub.cli.times import parse_time_ns, show_span, show_time
from hubbub.limits import SECOND

if TYPE_CHECKING:
    from hubbub.store import Store
    from hubbub.store.info import StoreInfo, TopicInfo
    from hubbub.store.prune import Pruning
    from hubbub.store.verify import Fault

app = typer.Typer(
    help="Look at a recording: what it holds, whether it is sound.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Place = Annotated[Path, typer.Argument(metavar="STORE", help="The folder of a recording.")]
_SHOWN_MAX = 20


def open_store(path: Path) -> "Store":
    """Open a recording; what is missing for that is said in one line."""
    from hubbub.store import Store

    return Store(path)


@app.command("info")
def info(path: Place, as_json: Json = False) -> None:
    """Tell what a recording holds: times, topics, files.

    Exits with 1 when some of it cannot be read.
    """
    open_store(path)
    from hubbub.store.info import converted_messages, look_at

    with Progress(converted_messages(path), " messages") as progress:
        found = look_at(path, lambda rows: progress.show(rows, ""))
    for fault in found.faults:
        note(fault)
    if as_json:
        print_json(_info_fields(found))
    else:
        screen = Screen()
        lines = [*_summary(found, screen.width), *_topics(found, screen.width)]
        code = write_until_the_end(lambda: print(*lines, sep="\n") or 0)
        if code:
            raise typer.Exit(code)
    raise typer.Exit(1 if found.faults else 0)


def _summary(found: "StoreInfo", width: int | None) -> list[str]:
    span = UNKNOWN
    if found.start_ns is not None and found.end_ns is not None:
        length = show_span(found.end_ns - found.start_ns)
        span = f"{show_time(found.start_ns)} to {show_time(found.end_ns)} UTC ({length})"
    state = f"by process {found.recorder_pid}" if found.recorder_pid else "not just now"
    others = ", ".join(f"{count:,} {name}" for name, count in found.rows.items())
    journal = (
        f"{found.segments_open} open, {found.segments_closed} closed"
        f" ({size(found.journal_bytes)}), {found.segments_damaged} damaged"
    )
    files = f"{found.files:,}, and {found.files_compacted:,} compacted ({size(found.file_bytes)})"
    lines = [
        f"recorder      {found.recorder}",
        f"recording     {state}",
        f"time          {span}",
        f"messages      {found.messages:,} ({size(found.size_bytes)} of payloads)",
        f"offsets       {_offsets(found)}, acknowledged before {found.acknowledged:,}",
        f"other rows    {others}",
        f"segments      {journal}",
        f"files         {files}",
    ]
    for one in found.checkpoints:
        needs = ", ".join(f"{name} from {first:,}" for name, first in one.needs.items())
        lines += wrapped("reader        ", f"{one.name} needs {needs}", width)
    return lines


def _offsets(found: "StoreInfo") -> str:
    if found.first_offset is None:
        return UNKNOWN
    return f"{found.first_offset:,} to {found.next_offset - 1:,}"


def _topics(found: "StoreInfo", width: int | None) -> list[str]:
    if not found.topics:
        return []
    columns = [
        Column("subject", is_number=False), Column("type", is_number=False), Column("sources"),
        Column("messages"), Column("bytes"), Column("per second"),
    ]  # fmt: skip
    rows = [
        [
            one.subject, ", ".join(sorted(one.schemas)) or UNKNOWN, str(len(one.sources)),
            f"{one.messages:,}", size(one.size_bytes),
            UNKNOWN if one.rate is None else f"{one.rate:,.1f}",
        ]
        for one in _by_subject(found)
    ]  # fmt: skip
    return ["", *table(columns, rows, width)]


def _by_subject(found: "StoreInfo") -> list["TopicInfo"]:
    return [found.topics[subject] for subject in sorted(found.topics)]


def _info_fields(found: "StoreInfo") -> dict[str, Any]:
    return {
        "path": str(found.path),
        "recorder": found.recorder,
        "recorders": sorted(found.recorders),
        "created_ns": found.created_ns,
        "recorder_pid": found.recorder_pid,
        "start_ns": found.start_ns,
        "end_ns": found.end_ns,
        "messages": found.messages,
        "bytes": found.size_bytes,
        "first_offset": found.first_offset,
        "next_offset": found.next_offset,
        "acknowledged": found.acknowledged,
        "rows": found.rows,
        "segments": {
            "open": found.segments_open,
            "closed": found.segments_closed,
            "damaged": found.segments_damaged,
            "bytes": found.journal_bytes,
        },
        "files": {
            "small": found.files,
            "compacted": found.files_compacted,
            "bytes": found.file_bytes,
        },
        "checkpoints": [{"name": one.name, "needs": one.needs} for one in found.checkpoints],
        "topics": [
            {
                "subject": one.subject,
                "types": sorted(one.schemas),
                "sources": sorted(one.sources),
                "messages": one.messages,
                "bytes": one.size_bytes,
                "start_ns": one.start_ns,
                "end_ns": one.end_ns,
                "messages_per_second": None if one.rate is None else round(one.rate, 3),
            }
            for one in _by_subject(found)
        ],
        "faults": found.faults,
    }


@app.command("verify")
def verify(path: Place, as_json: Json = False) -> None:
    """Look for damage, holes and doubles in a recording.

    Exits with 1 when something is.
    """
    open_store(path)
    from hubbub.store.verify import files_of
    from hubbub.store.verify import verify as look

    faults: list[Fault] = []
    files = size_bytes = 0
    is_whole = True
    try:
        with Progress(len(files_of(path)), " files") as progress:
            for looked in look(path):
                files += looked.path != path
                size_bytes += looked.size_bytes
                faults += looked.faults
                for fault in looked.faults:
                    note(str(fault))
                progress.show(files, size(size_bytes))
    except KeyboardInterrupt:
        is_whole = False
    _report_faults(faults, files, size_bytes, as_json, is_whole)
    raise typer.Exit(1 if faults else 0 if is_whole else EXIT_INTERRUPTED)


def _report_faults(
    faults: list["Fault"], files: int, size_bytes: int, as_json: bool, is_whole: bool
) -> None:
    if as_json:
        print_json(
            {
                "files": files,
                "bytes": size_bytes,
                "is_complete": is_whole,
                "faults": [
                    {"path": str(one.path), "what": one.what, "first": one.first, "last": one.last}
                    for one in faults
                ],
            }
        )
        return
    what = f"{plural(files, 'file')}, {size(size_bytes)}"
    end = "" if is_whole else " when it was interrupted"
    print(f"{what}: {plural(len(faults), 'fault') if faults else 'everything is sound'}{end}")


@app.command("convert")
def convert(path: Place, as_json: Json = False) -> None:
    """Make Parquet files of what a recorder left in its journal.

    The pipeline reads those alone. A recorder does this by itself, also when it starts again; this
    is for one that was killed, or recorded with --no-convert. Exits with 1 when something could not
    be read.
    """
    open_store(path)
    from hubbub.store.converter import convert_rest

    rest = convert_rest(path)
    damaged = [one.segment for one in rest.conversions if not one.is_whole]
    messages = sum(one.messages for one in rest.conversions)
    for torn in rest.torn:
        note(f"segment {torn.segment}: a write that never ended ({torn.size_bytes} bytes) is cut")
    for segment in damaged:
        note(f"segment {segment} could not be read whole: it is kept in journal/damaged")
    if as_json:
        print_json(
            {
                "segments": len(rest.conversions),
                "messages": messages,
                "torn_bytes": sum(torn.size_bytes for torn in rest.torn),
                "damaged": damaged,
            }
        )
    else:
        what = f"{plural(len(rest.conversions), 'segment')}, {plural(messages, 'message')}"
        note(f"{what} converted")
    raise typer.Exit(1 if damaged else 0)


@app.command("compact")
def compact(path: Place, as_json: Json = False) -> None:
    """Put the small files of past hours together.

    A recorder does this by itself for hours that end while it records. What a registered reader
    still needs, and the newest files, stay as they are.
    """
    open_store(path)
    from hubbub.store.compact import compact_now

    entries = compact_now(path, time.time_ns())
    sources = sum(len(entry.sources) for entry in entries)
    if as_json:
        rows = sum(entry.rows for entry in entries)
        print_json({"files": len(entries), "replaced": sources, "rows": rows})
    else:
        note(f"{plural(sources, 'small file')} became {plural(len(entries), 'large one')}")


@app.command("prune")
def prune(
    path: Place,
    keep: Annotated[
        str | None,
        typer.Option("--keep", metavar="DURATION", help="Remove what is older, such as 7d or 12h."),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="TIME", help="Remove what was received before this."),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option("--max-size", metavar="SIZE", help="Remove the oldest beyond, as 20GB."),
    ] = None,
    forget: Annotated[
        list[str] | None,
        typer.Option("--forget", metavar="NAME", help="Forget a reader that will not come again."),
    ] = None,
    is_sure: Annotated[
        bool, typer.Option("--yes", help="Do it; without this it is shown.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove old data that no reader needs.

    Whole files of past hours go, none that a registered reader still needs. Shows what would go,
    and removes it only with --yes. Small files that were compacted an hour ago go in any case: the
    same rows are in larger ones.
    """
    if keep is not None and before is not None:
        raise typer.BadParameter("give one of --keep and --before")
    open_store(path)
    from hubbub.store import checkpoints
    from hubbub.store.prune import prune as remove

    now_ns = time.time_ns()
    before_ns = parse_time_ns(before) if before is not None else None
    if keep is not None:
        before_ns = now_ns - int(parse_duration(keep) * SECOND)
    bytes_max = None if max_size is None else parse_size(max_size)
    for name in forget or ():
        if is_sure and not checkpoints.remove(path, name):
            note(f"no reader is called {name}")
    pruning = remove(
        path, now_ns, before_ns=before_ns, bytes_max=bytes_max, is_dry=not is_sure
    )  # fmt: skip
    if as_json:
        print_json(_pruning_fields(pruning, is_done=is_sure))
    else:
        _report_pruning(path, pruning, is_done=is_sure)
        if before_ns is None and bytes_max is None:
            note("--keep, --before and --max-size say which data is to go: none was named")


def _pruning_fields(pruning: "Pruning", *, is_done: bool) -> dict[str, Any]:
    return {
        "is_done": is_done,
        "bytes": pruning.size_bytes,
        "left_bytes": pruning.left_bytes,
        "removed": [str(one.file.path) for one in pruning.removed],
        "replaced": [str(path) for path, _ in pruning.replaced],
        "held": [{"path": str(one.file.path), "why": one.held_by} for one in pruning.held],
    }


def _report_pruning(store: Path, pruning: "Pruning", *, is_done: bool) -> None:
    lines = [
        f"{one.file.path.relative_to(store)}  {size(one.size_bytes)}"
        for one in pruning.removed[:_SHOWN_MAX]
    ]
    if len(pruning.removed) > _SHOWN_MAX:
        lines.append(f"... and {len(pruning.removed) - _SHOWN_MAX:,} more (--json names them all)")
    for line in lines:
        print(line)
    sys.stdout.flush()
    goes = "went" if is_done else "would go"
    what = plural(len(pruning.removed), "file")
    note(f"{what} with data and {len(pruning.replaced):,} replaced ones {goes}:"
         f" {size(pruning.size_bytes)}; {size(pruning.left_bytes)} of data stay")  # fmt: skip
    if pruning.held:
        why = sorted({one.held_by for one in pruning.held})
        note(f"{plural(len(pruning.held), 'file')} must stay: {', '.join(why)}")
    if not is_done and (pruning.removed or pruning.replaced):
        note("nothing was removed: --yes does it")
