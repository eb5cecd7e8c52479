"""`hubbub pipeline run`: a recording becomes tables, by Spark."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hubbub.cli.check import check
from hubbub.cli.options import Bus, Json, on_the_bus
from hubbub.cli.progress import Progress
from hubbub.cli.quantities import parse_duration
from hubbub.cli.session import EXIT_INTERRUPTED, end_on_sigterm, open_node
from hubbub.cli.terminal import note, plural, print_json
from hubbub.errors import ConfigurationError, StoreError
from hubbub.limits import ALERT_INTERVAL_S, SECOND, WATERMARK_S, WINDOW_S

if TYPE_CHECKING:
    from hubbub.pipeline.run import Pipeline, Summary
    from hubbub.pipeline.run import Progress as Done

app = typer.Typer(
    help="Turn a recording into tables: health, gaps, who talks to whom.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("check")(check)
_ALERTS_KEPT = 64  # For who comes later.


@app.callback()
def _pipeline() -> None:
    """Turn a recording into tables: health, gaps, who talks to whom."""


Window = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="Length of a window of topic_health. [default: that of the tables, or 10s]",
    ),
]
Watermark = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="A window is final so long after it; a live run cuts later rows."
        " [default: that of the tables, or 60s]",
    ),
]


@app.command("run")
@on_the_bus
def run(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The folder of a recording.")],
    out: Annotated[
        Path,
        typer.Option(
            "--output", "--out", "-o", metavar="TABLES", help="Where the tables are written."
        ),
    ],
    live: Annotated[
        bool, typer.Option("--live", help="Go on while it is recorded, until Ctrl-C.")
    ] = False,
    batch: Annotated[
        bool, typer.Option("--batch", help="Make all tables again, from everything there is.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE", help="Only this table; may be repeated."),
    ] = None,
    window: Window = None,
    watermark: Watermark = None,
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Spark's: spark://host:7077. By default this machine."),
    ] = None,
    alerts: Annotated[
        bool, typer.Option("--alerts", help="Publish what is wrong to /hubbub/alerts (--live).")
    ] = False,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Set loss, silent, periods or slow, or add module:function; may be repeated.",
        ),
    ] = None,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Turn a recording into tables, or bring tables up to date.

    The first run reads all, later ones what is new. --domain and what follows are for --alerts.
    """
    _check(store, out, live, batch, alerts or bool(rule))
    end_on_sigterm()
    with ExitStack() as stack:
        look = None
        if alerts:
            from hubbub.pipeline.alerts import Alerts, choose_rules

            rules = choose_rules(rule or [])  # Before the node opens: a bad one is a line at once.
            publish = _publish_to(stack.enter_context(open_node(bus)))
            look = Alerts(out, rules, publish).look
        bar = stack.enter_context(Progress(None, ""))
        pipeline = stack.enter_context(
            _open(store, out, only or [], window, watermark, master, batch, live, bar)
        )
        summary, is_interrupted = _run(pipeline, live, batch, look)
    _print(summary, out, as_json)
    if is_interrupted and not live:
        raise typer.Exit(EXIT_INTERRUPTED)


def _check(store: Path, out: Path, is_live: bool, is_batch: bool, has_alerts: bool) -> None:
    """Say what cannot work before Spark is started for it."""
    from hubbub.store import Store

    if is_live and is_batch:
        raise ConfigurationError("--live and --batch cannot be had together")
    if has_alerts and not is_live:
        raise ConfigurationError("--alerts and --rule need --live: they look at what happens now")
    if out.resolve().is_relative_to(store.resolve()):
        raise ConfigurationError(f"{out} is in the recording itself: name another folder")
    Store(store)
    _convert_rest(store)


def _convert_rest(store: Path) -> None:
    """Let Spark see what a killed recorder left; one that is at work does that itself."""
    from hubbub.store.converter import convert_rest
    from hubbub.store.journal import segments

    if not segments(store):
        return
    with suppress(StoreError):  # Somebody records there, or converts.
        rest = convert_rest(store)
        for torn in rest.torn:
            note(f"segment {torn.segment}: a write that never ended is cut")


def choose_span(asked: str | None, made_ns: int | None, otherwise_s: float) -> float:
    """Return the seconds that were asked for, else those that the tables were made with."""
    if asked is not None:
        return parse_duration(asked)
    return otherwise_s if made_ns is None else made_ns / SECOND


@contextmanager
def _open(
    store: Path,
    out: Path,
    only: list[str],
    window: str | None,
    watermark: str | None,
    master: str | None,
    is_anew: bool,
    is_live: bool,
    bar: Progress,
) -> "Iterator[Pipeline]":
    """Start Spark, and be the only run that writes the tables."""
    from hubbub.pipeline.session import SMALL_STEPS, start
    from hubbub.pipeline.versions import Versions

    versions = Versions(out)
    with versions.locked():
        bar.show_now("Spark is starting")
        options = SMALL_STEPS if is_live else ()
        spark = start(master, name="hubbub pipeline", java_options=options)
        try:
            from hubbub.pipeline.run import Pipeline, make_setup

            made = {} if is_anew else versions.state()
            setup = make_setup(
                only,
                choose_span(window, made.get("window_ns"), WINDOW_S),
                choose_span(watermark, made.get("watermark_ns"), WATERMARK_S),
            )

            def report(done: "Done") -> None:
                rate = done.rows / done.seconds if done.seconds else 0.0
                bar.show(done.rows, f"rows, {rate:,.0f}/s: {done.doing}", done.total)

            yield Pipeline(spark, store, out, setup, report, is_anew=is_anew)
        finally:
            spark.stop()


def _run(
    pipeline: "Pipeline", is_live: bool, is_batch: bool, look: Callable[[], None] | None
) -> "tuple[Summary, bool]":
    """Run until it is done or interrupted; every step that was done is kept."""
    try:
        if is_batch:
            return pipeline.run_batch(), False
        if not is_live:
            return pipeline.run_incremental(), False
        return pipeline.run_live(_until_interrupted(look)), False
    except KeyboardInterrupt:
        return pipeline.summary(), True


def _until_interrupted(look: Callable[[], None] | None) -> Callable[[], bool]:
    """Look at the tables every second; it is never over by itself."""
    next_s = 0.0

    def is_over() -> bool:
        nonlocal next_s
        if look is not None and time.monotonic() >= next_s:
            look()
            next_s = time.monotonic() + ALERT_INTERVAL_S
        return False

    return is_over


def _publish_to(node: Any) -> Callable[[str, bytes], object]:
    publishers: dict[str, Any] = {}

    def publish(subject: str, payload: bytes) -> object:
        if subject not in publishers:
            publishers[subject] = node.publisher(subject, history=_ALERTS_KEPT)
        return publishers[subject].publish(payload)

    return publish


def _print(summary: "Summary", out: Path, as_json: bool) -> None:
    from hubbub.pipeline.versions import Versions

    state = Versions(out).state()
    rows = {name: count_rows(out, name) for name in state.get("tables", [])}
    for fault in summary.unreadable:
        note(f"passed over: {fault}")
    if as_json:
        print_json(
            {
                "tables": rows,
                "steps": summary.steps,
                "seconds": round(summary.seconds, 3),
                "rows_per_second": round(summary.rows_per_second),
                "this_run": summary.counts._asdict(),
                "all_runs": state.get("counts", {}),
                "unreadable": summary.unreadable,
            }
        )
        return
    width = max(map(len, rows), default=0)
    for name, count in rows.items():
        print(f"{name:{width}}  {count:>12,}")
    counts = summary.counts
    print(
        f"{plural(counts.read, 'row')} read in {summary.seconds:.1f} s"
        f" ({summary.rows_per_second:,.0f}/s): {counts.messages:,} new messages,"
        f" {counts.duplicates:,} duplicates, {counts.quarantined:,} in quarantine,"
        f" {counts.late:,} late"
    )
    sys.stdout.flush()


def count_rows(out: Path, table: str) -> int:
    """Count the rows of a table by the ends of its files."""
    import pyarrow.parquet as pq

    from hubbub.pipeline.versions import Versions

    return sum(pq.read_metadata(path).num_rows for path in Versions(out).files(table))
