"""Run scenarios by name and seed, one or many at a time."""

import gc
import signal
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context

from hubbub.limits import SECOND
from hubbub.simulation.scenarios import SCENARIOS
from hubbub.simulation.stage import Stage
from hubbub.simulation.trace import Trace
from hubbub.simulation.world import Violation

Work = tuple[str, int]
_GARBAGE_OBJECTS = 100_000


@dataclass(frozen=True, slots=True)
class Result:
    """How one seed of one scenario went."""

    scenario: str
    seed: int
    ok: bool
    failure: str
    trace_hash: str
    virtual_seconds: float
    counts: dict[str, int]


def list_scenarios() -> dict[str, str]:
    """Return the names of all scenarios, and what each of them shows."""
    return {name: (play.__doc__ or "").strip() for name, play in SCENARIOS.items()}


def run(scenario: str, seed: int, trace: Trace | None = None) -> Result:
    """Run one seed of one scenario; a broken promise is a result, not an exception.

    What happens is kept in a trace, if one is given.
    """
    play = SCENARIOS.get(scenario)
    if play is None:
        raise ValueError(f"no scenario {scenario!r}; there are {', '.join(SCENARIOS)}")
    stage = Stage(seed)
    stage.ledger.trace = trace
    failure = ""
    try:
        play(stage)
    except Violation as violation:
        failure = str(violation)
    except Exception:  # A machine that raises has failed, too, and the seed must be known.
        failure = traceback.format_exc()
    if trace is not None:
        trace.finish(stage.ledger)
    world = stage.world
    counts = dict(sorted((world.counts + stage.network.counts).items()))
    return Result(
        scenario, seed, not failure, failure, world.trace_hash, world.now / SECOND, counts
    )


def _run(work: Work) -> Result:
    return run(*work)


def _ignore_interrupt() -> None:
    # The parent hears Ctrl-C and ends the pool; children that hear it, too, print tracebacks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_many(scenarios: Iterable[str], seeds: Iterable[int], jobs: int = 1) -> Iterator[Result]:
    """Run every seed of every scenario; results come in that order, however many run at once."""
    seeds = list(seeds)
    return run_all([(name, seed) for name in scenarios for seed in seeds], jobs)


def run_all(work: list[Work], jobs: int = 1) -> Iterator[Result]:
    """Run some seeds of some scenarios; results come in that order."""
    with _rare_collections():
        if jobs <= 1 or len(work) <= 1:
            yield from map(_run, work)
            return
        with get_context("fork").Pool(min(jobs, len(work)), _ignore_interrupt) as pool:
            yield from pool.imap(_run, work)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for garbage less often: a run keeps what it makes until it ends.

    As often as Python does by itself it takes a seventh of the time (services_crowd 3.9 s, then
    3.3 s).
    """
    before = gc.get_threshold()
    gc.set_threshold(_GARBAGE_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
