"""Every scenario, a few seeds here, a thousand in `make soak`; and every seed that ever failed."""

import os
from functools import cache
from pathlib import Path

import pytest

from hubbub.simulation import list_scenarios, run
from hubbub.simulation.runner import Result

# A thousand seeds without a failure bound the failures per seed by 0.3 % (95 %).
SEEDS_SOAK = 1000
SEEDS = 2
# These cost a second or more each.
FEWER = {
    "nak_implosion": 3,
    "slow_receiver": 2,
    "stopped_receiver": 4,
    "partition_long": 3,
    "crash": 3,
    "discovery_large": 1,
    "gateway_slow": 1,
    "gateway_maze": 1,
    "gateway_parallel": 1,
    "timed_jitter": 3,
    "timed_flood": 2,
    "services_crowd": 1,
    "services_tree": 1,
    "services_join": 1,
    "services_leave": 1,
    "services_managers_crash": 1,
}

REGRESSIONS = [
    (line.split()[0], int(line.split()[1]))
    for line in (Path(__file__).parent / "regressions.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


IS_SOAK = os.environ.get("HUBBUB_SOAK") == "1"


@cache
def results_of(scenario: str, count: int) -> list[Result]:
    return [run(scenario, seed) for seed in range(count)]


# Not for the soak, which runs a thousand seeds of each by command, 25 at a time.
@pytest.mark.parametrize("scenario", list(list_scenarios()))
def test_every_seed_of_the_scenario_keeps_the_promises(scenario: str) -> None:
    results = results_of(scenario, FEWER.get(scenario, SEEDS))
    assert [(result.seed, result.failure) for result in results if not result.ok] == []


@pytest.mark.parametrize(("scenario", "seed"), REGRESSIONS)
def test_seed_that_failed_once_does_not_fail_again(scenario: str, seed: int) -> None:
    assert run(scenario, seed).failure == ""


@pytest.mark.soak
def test_many_nodes_with_a_thousand_topics_rest_at_less_than_200_bytes_a_second() -> None:
    seed, nodes = (37, 100) if IS_SOAK else (6, 50)
    result = run("discovery_large", seed)
    assert result.failure == ""
    assert result.counts["heartbeat"] >= 4 * nodes
    assert 0 < result.counts["rest_bytes_per_second"] <= 200


@pytest.mark.soak
def test_fifty_receivers_that_lose_the_same_frame_ask_for_it_less_than_three_times() -> None:
    results = results_of("nak_implosion", SEEDS_SOAK if IS_SOAK else FEWER["nak_implosion"])
    mean = sum(result.counts["naks_per_loss_percent"] for result in results) / len(results) / 100
    assert 1 <= mean <= 2.5
