"""The simulator itself: it repeats itself exactly, it can see, and it says what it saw."""

import gc
import os
import subprocess
import sys
from inspect import signature

import pytest

from hubbub.events import GapAbandoned
from hubbub.protocol.delivery import MULTICAST, Delivery
from hubbub.simulation import (
    bugs_gateways,
    bugs_links,
    bugs_services,
    bugs_timed,
    list_scenarios,
    run,
    run_many,
)
from hubbub.simulation.bugs import BUGS, planted
from hubbub.simulation.gateways import Lans
from hubbub.simulation.scenarios import SCENARIOS
from hubbub.simulation.stage import Stage
from hubbub.simulation.world import Violation

assert bugs_timed and bugs_services and bugs_gateways and bugs_links  # They enter their bugs, too.

# So many seeds are enough to find any of the planted bugs.
SEEDS_TO_FIND_A_BUG = 25


@pytest.mark.parametrize("name", list(BUGS))
def test_planted_bug_is_found(name: str) -> None:
    with planted(name) as bug:
        seeds = range(bug.seed, bug.seed + SEEDS_TO_FIND_A_BUG)
        failures = (run(bug.scenario, seed).failure for seed in seeds)
        # One that makes a machine raise shows nothing of the checkers.
        seen = (failure for failure in failures if failure and "Traceback" not in failure)
        assert any(bug.by in failure for failure in seen)


@pytest.mark.parametrize("name", list(BUGS))
def test_planted_bug_can_be_called_as_what_it_replaces(name: str) -> None:
    sound = BUGS[name].owner.__dict__[BUGS[name].method]
    with planted(name) as bug:
        broken = bug.owner.__dict__[bug.method]
    if not isinstance(sound, property):  # Else it raises, and shows nothing of the checkers.
        parameters = signature(sound).parameters.values()
        named = {one.name: one for one in parameters if one.kind is one.KEYWORD_ONLY}
        placed = [one for one in parameters if one.name not in named]
        signature(broken).bind(*placed, **named)


def test_planted_bug_is_gone_afterwards() -> None:
    for bug in BUGS.values():
        before = bug.owner.__dict__[bug.method]
        with planted(next(name for name, other in BUGS.items() if other is bug)):
            assert bug.owner.__dict__[bug.method] is not before
        assert bug.owner.__dict__[bug.method] is before


HASHES = "from hubbub.simulation import run; print(*[run(n, 3).trace_hash for n in {names!r}])"


def test_same_seed_gives_the_same_trace_also_under_another_hash_seed() -> None:
    names = ["random_loss", "churn", "many_topics", "restart", "wishes"]
    here = [run(name, 3).trace_hash for name in names]
    assert len({*here, *(run(name, 4).trace_hash for name in names)}) == 2 * len(names)
    for hash_seed in ("1", "2"):
        output = subprocess.run(
            [sys.executable, "-c", HASHES.format(names=names)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        assert output.split() == here


def canary(stage: Stage) -> None:
    """Fail one seed in a hundred, to prove that failures are seen."""
    stage.world.check(not stage.world.chance(0.01), "the canary is dead")


def test_canary_that_dies_in_one_seed_of_a_hundred_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SCENARIOS, "canary", canary)
    results = list(run_many(["canary"], range(1000)))
    dead = [result for result in results if not result.ok]
    assert 3 <= len(dead) <= 20
    assert all(result.failure == "at 0.000000 s: the canary is dead" for result in dead)


def test_machine_that_raises_is_a_failure_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SCENARIOS, "broken", lambda stage: 1 // 0)  # type: ignore[arg-type]
    result = run("broken", 7)
    assert not result.ok and "ZeroDivisionError" in result.failure


def test_many_seeds_at_once_give_the_same_results_in_the_same_order() -> None:
    threshold = gc.get_threshold()
    one_by_one = list(run_many(["tail_loss", "goodbye"], range(3)))
    assert gc.get_threshold() == threshold
    assert list(run_many(["tail_loss", "goodbye"], range(3), jobs=2)) == one_by_one
    assert [(result.scenario, result.seed) for result in one_by_one] == [
        (name, seed) for name in ("tail_loss", "goodbye") for seed in range(3)
    ]


def test_unknown_scenario_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match=r"no scenario 'nothing'; there are .*random_loss"):
        run("nothing", 0)


def test_every_scenario_says_in_one_line_what_it_shows() -> None:
    lines = list_scenarios()
    assert len(lines) >= 30
    assert all(line and "\n" not in line for line in lines.values())


def test_gateway_that_wants_a_subject_again_may_be_told_of_a_hole_again() -> None:
    """For it, as for any node, another reception has begun; else it is told twice (maze 21009)."""
    stage = Stage(0)
    lans = Lans(stage, 2)
    port = lans.gateway(0, 1).nodes[0]
    publisher = lans.node(0)
    publisher.publish_on("/t/0")
    lans.ledger.are_gaps_allowed = True
    gap = GapAbandoned("sim", publisher.source, "/t/0", 114, 500, "expired")
    lans.ledger.reported(port, gap)
    port.withdraw(frozenset())
    lans.ledger.reported(port, gap)
    lans.ledger.check_receptions()
    port.withdraw(frozenset({"/t/..."}))
    lans.ledger.reported(port, gap)
    with pytest.raises(Violation, match="gaps overlap"):
        lans.ledger.check_receptions()


@pytest.mark.parametrize("is_killed", [True, False])
def test_who_had_nothing_yet_when_a_gateway_died_may_begin_anywhere(*, is_killed: bool) -> None:
    """Nobody can tell it what it missed; who was not bereft must have all (maze 300119)."""
    stage = Stage(0)
    lans = Lans(stage, 2)
    gateway, publisher, far = lans.gateway(0, 1), lans.node(0), lans.node(1)
    lans.ledger.are_gaps_allowed = True
    far.subscribe("/t/0")
    topic = publisher.publish_on("/t/0")
    for _ in range(3):
        publisher.publish(topic, b"")
    if is_killed:
        gateway.crash()
    stage.world.run_for(1)
    lans.ledger.delivered(far, Delivery(topic, 3, [b""], [0], 0, MULTICAST))
    if is_killed:
        lans.ledger.check_receptions()
    else:
        with pytest.raises(Violation, match="began with 3, but 1 was granted"):
            lans.ledger.check_receptions()
