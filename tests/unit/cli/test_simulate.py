import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from hubbub.cli import simulate
from hubbub.cli.simulate import Tally, _uninterrupted_start, parse_seeds
from hubbub.errors import ConfigurationError
from hubbub.simulation import Result
from hubbub.simulation.scenarios import SCENARIOS
from hubbub.simulation.stage import Stage


def make_result(seed: int, failure: str = "") -> Result:
    return Result("loss", seed, not failure, failure, f"hash{seed}", 2.5, {})


@pytest.mark.parametrize(
    ("text", "seeds"), [("0:3", range(3)), ("5:6", range(5, 6)), ("7", range(7, 8))]
)
def test_seeds_are_a_half_open_range_or_one(text: str, seeds: range) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", ":", "a:b", "3:3", "5:2", "-1:2", "1:2:3", "0:"])
def test_seeds_that_are_none_are_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write A:B"):
        parse_seeds(text)


def test_failure_is_shown_at_once_with_how_to_see_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tallies = {"loss": Tally()}
    results = [make_result(1), make_result(2, "at 1 s: \x1b lost\nsecond line")]
    assert not simulate._collect(results, tallies, 2, as_json=False)
    shown = capsys.readouterr().out
    assert "FAILED loss, seed 2:\n    at 1 s: \\x1b lost\n    second line\n" in shown
    assert "hubbub simulate --scenario loss --seeds 2\n" in shown
    assert tallies["loss"].runs == 2
    assert [one.seed for one in tallies["loss"].failures] == [2]


def test_summary_names_failing_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    tallies = {"loss": Tally(3, 7.5, [make_result(1, "x"), make_result(2, "y")]), "calm": Tally(3)}
    simulate._print_summary(tallies, "0:3", is_interrupted=False)
    shown = capsys.readouterr().out
    assert "1, 2" in shown
    assert shown.endswith("6 runs of seeds 0:3: 2 failed\n")


def test_summary_for_programs_has_seed_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    simulate._print_summary_json({"loss": Tally(3, 7.5, [make_result(1, "x")])}, "0:3", False)
    told = json.loads(capsys.readouterr().out)
    assert (told["runs"], told["failed"]) == (3, 1)
    assert told["failures"] == [
        {"scenario": "loss", "seed": 1, "reason": "x", "trace_hash": "hash1"}
    ]
    assert told["scenarios"]["loss"]["failing_seeds"] == [1]


def fails_with_odd_seeds(stage: Stage) -> None:
    """Fail every other seed."""
    stage.world.check(stage.world.seed % 2 == 0, "odd")


@pytest.mark.parametrize(("seeds", "code"), [("0:3", 1), ("2", 0)])
def test_seed_that_failed_is_the_exit_code_which_the_soak_goes_by(
    seeds: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(SCENARIOS, "odd", fails_with_odd_seeds)
    monkeypatch.setattr(simulate, "end_on_sigterm", lambda: None)  # This process goes on.
    monkeypatch.setattr(os, "register_at_fork", lambda **_: None)
    with pytest.raises(typer.Exit) as ended:
        simulate.simulate(["odd"], seeds, jobs=1, as_json=True)
    assert ended.value.exit_code == code
    assert json.loads(capsys.readouterr().out)["failed"] == code


def test_traces_of_another_sweep_are_not_mixed_with_ours(tmp_path: Path) -> None:
    """Said before Spark is started, which takes its time."""
    (tmp_path / "messages").mkdir()
    with pytest.raises(ConfigurationError, match="is not empty: remove it, or name another"):
        simulate.simulate(["goodbye"], "0:1", on_spark=True, traces=tmp_path)


def test_ctrl_c_waits_for_the_first_result_also_where_another_thread_takes_the_signal() -> None:
    is_over = threading.Event()
    other = threading.Thread(target=is_over.wait)
    other.start()

    def results() -> Iterator[Any]:
        os.kill(os.getpid(), signal.SIGINT)
        is_over.wait(0.2)  # While a pool would be made.
        yield "first"
        yield "second"

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell may ignore it.
    coming = _uninterrupted_start(results())
    try:
        assert next(coming) == "first"
        with pytest.raises(KeyboardInterrupt):
            next(coming)
        assert [*_uninterrupted_start(iter(["a", "b"]))] == ["a", "b"]  # type: ignore[arg-type]
    finally:
        signal.signal(signal.SIGINT, before)
        is_over.set()
        other.join()
