"""`hubbub simulate`: run the protocol under virtual time, by scenario and seed."""

import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from hubbub.cli.ctrl_c import CtrlC
from hubbub.cli.options import Json
from hubbub.cli.progress import Progress
from hubbub.cli.session import EXIT_INTERRUPTED, end_on_sigterm
from hubbub.cli.terminal import escape, note, plural, print_json
from hubbub.errors import ConfigurationError

if TYPE_CHECKING:
    from hubbub.simulation import Result

ALL = "all"


@dataclass(slots=True)
class Tally:
    """How the seeds of one scenario went."""

    runs: int = 0
    virtual_seconds: float = 0.0
    failures: "list[Result]" = field(default_factory=list)


def simulate(
    scenario: Annotated[
        list[str] | None,
        typer.Option("--scenario", "-s", metavar="NAME|all", help="Which to run; may be repeated."),
    ] = None,
    seeds: Annotated[
        str, typer.Option(metavar="A:B", help="From A up to, but without, B; or a single seed.")
    ] = "0:100",
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=0, help="Processes at once; 0: one a processor.")
    ] = 0,
    show_list: Annotated[
        bool, typer.Option("--list", help="Print the scenarios and what they show, and exit.")
    ] = False,
    on_spark: Annotated[
        bool,
        typer.Option("--spark", help="Share the runs out over Spark, and let it judge them, too."),
    ] = False,
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Spark's master; with --spark. By default this machine."),
    ] = None,
    traces: Annotated[
        Path,
        typer.Option(metavar="FOLDER", help="Where Spark writes what happened."),
    ] = Path("traces"),
    as_json: Json = False,
) -> None:
    """Run scenarios under virtual time, each seed with its own faults.

    The same scenario and seed do the same again, always. Exits with 1 if any run failed. With
    --spark the messages, events and debts of all runs are kept as tables of a recording, and what
    judges real recordings (`hubbub pipeline check`) judges them.
    """
    from hubbub.simulation import list_scenarios, run_many

    known = list_scenarios()
    if show_list:
        _print_scenarios(known, as_json)
        return
    names = _choose(scenario or [ALL], known)
    numbers = parse_seeds(seeds)
    end_on_sigterm()
    # A pool ends its processes by SIGTERM, and counts on its ending them at once.
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    tallies = {name: Tally() for name in names}
    if on_spark or master is not None:
        _simulate_on_spark(names, seeds, tallies, (traces, master), as_json)
        return
    results = run_many(names, numbers, jobs=jobs or os.cpu_count() or 1)
    is_interrupted = _collect(results, tallies, len(names) * len(numbers), as_json)
    (_print_summary_json if as_json else _print_summary)(tallies, seeds, is_interrupted)
    _exit(tallies, is_interrupted)


def _simulate_on_spark(
    names: list[str], seeds: str, tallies: dict[str, Tally], place: tuple[Path, str | None],
    as_json: bool,
) -> None:  # fmt: skip
    """Do the same on Spark, and let it judge what was recorded."""
    from hubbub.cli.simulate_spark import OnSpark, print_faults

    traces, master = place
    numbers = parse_seeds(seeds)
    spark = OnSpark(names, numbers, traces, master)
    try:
        is_interrupted = _collect(spark.run(), tallies, len(names) * len(numbers), as_json)
        faults = [] if is_interrupted else spark.judge()
    finally:
        spark.stop()
    if as_json:
        _print_summary_json(tallies, seeds, is_interrupted, faults)
    else:
        _print_summary(tallies, seeds, is_interrupted)
        if not is_interrupted:
            print_faults(faults, traces)
    _exit(tallies, is_interrupted, is_faulty=bool(faults))


def _exit(tallies: dict[str, Tally], is_interrupted: bool, *, is_faulty: bool = False) -> NoReturn:
    if is_interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    has_failed = is_faulty or any(tally.failures for tally in tallies.values())
    raise typer.Exit(1 if has_failed else 0)


def parse_seeds(text: str) -> range:
    """Read `A:B` or a single seed."""
    first, colon, end = text.partition(":")
    try:
        seeds = range(int(first), int(end) if colon else int(first) + 1)
    except ValueError:
        seeds = range(0)
    if not seeds or seeds[0] < 0:
        raise ConfigurationError(
            f"seeds {text!r}: write A:B with 0 <= A < B (B itself is not run), or a single seed"
        )
    return seeds


def _choose(wanted: list[str], known: dict[str, str]) -> list[str]:
    unknown = [name for name in wanted if name != ALL and name not in known]
    if unknown:
        raise ConfigurationError(f"no scenario {unknown[0]}; {_others(unknown[0], known)}")
    return list(known) if ALL in wanted else list(dict.fromkeys(wanted))


def _collect(
    results: "Iterable[Result]", tallies: dict[str, Tally], total: int, as_json: bool
) -> bool:
    """Count results as they come, failures shown at once; True: interrupted."""
    done = failed = 0
    with Progress(total) as progress:
        try:
            for result in _uninterrupted_start(results):
                tally = tallies[result.scenario]
                tally.runs += 1
                tally.virtual_seconds += result.virtual_seconds
                done += 1
                if not result.ok:
                    failed += 1
                    tally.failures.append(result)
                    if not as_json:
                        _print_failure(result)
                progress.show(done, f"{result.scenario}, {failed} failed")
        except KeyboardInterrupt:
            return True
    return False


def _uninterrupted_start(results: "Iterable[Result]") -> "Iterator[Result]":
    """Let Ctrl-C wait for the first result: a pool that is half made cannot be ended cleanly.

    To block the signal would not do: another thread takes it then, and Python tells the main one.
    """
    going_on = iter(results)
    with CtrlC() as ctrl_c:
        first = next(going_on, None)
    if first is not None:
        yield first
    if ctrl_c.is_pressed:
        raise KeyboardInterrupt
    yield from going_on


def _print_failure(result: "Result") -> None:
    print(f"FAILED {result.scenario}, seed {result.seed}:")
    for line in result.failure.splitlines():
        print(f"    {escape(line)}")
    print(f"    again: hubbub simulate --scenario {result.scenario} --seeds {result.seed}")


def _print_summary(tallies: dict[str, Tally], seeds: str, is_interrupted: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("scenario", no_wrap=True)
    for title in ("runs", "failed", "virtual seconds"):
        table.add_column(title, justify="right")
    table.add_column("failing seeds")
    for name, tally in tallies.items():
        failing = ", ".join(str(one.seed) for one in tally.failures)
        seconds = f"{tally.virtual_seconds:,.0f}"
        table.add_row(name, str(tally.runs), str(len(tally.failures)), seconds, failing)
    Console(highlight=False).print(table)
    runs = sum(tally.runs for tally in tallies.values())
    failed = sum(len(tally.failures) for tally in tallies.values())
    print(
        f"{plural(runs, 'run')} of seeds {seeds}: {f'{failed} failed' if failed else 'all green'}"
    )
    if is_interrupted:
        note("interrupted: the table holds what was done until then")


def _print_summary_json(
    tallies: dict[str, Tally], seeds: str, is_interrupted: bool,
    faults: list[dict[str, Any]] | None = None,
) -> None:  # fmt: skip
    failures = [_failure_fields(one) for tally in tallies.values() for one in tally.failures]
    print_json(
        {
            "seeds": seeds,
            "runs": sum(tally.runs for tally in tallies.values()),
            "failed": len(failures),
            "is_interrupted": is_interrupted,
            "failures": failures,
            **({} if faults is None else {"faults": faults}),
            "scenarios": {
                name: {
                    "runs": tally.runs,
                    "failed": len(tally.failures),
                    "failing_seeds": [one.seed for one in tally.failures],
                    "virtual_seconds": round(tally.virtual_seconds, 3),
                }
                for name, tally in tallies.items()
            },
        }
    )


def _failure_fields(result: "Result") -> dict[str, Any]:
    return {
        "scenario": result.scenario,
        "seed": result.seed,
        "reason": result.failure,
        "trace_hash": result.trace_hash,
    }


def _print_scenarios(known: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_json(known)
        return
    width = max(map(len, known))
    for name, text in known.items():
        print(f"{name:{width}}  {text.partition(chr(10))[0]}")


def _others(unknown: str, known: dict[str, str]) -> str:
    """Name what was probably meant; a line with all of them nobody would read."""
    near = get_close_matches(unknown, known)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{meant}`hubbub simulate --list` names all {len(known)}"
