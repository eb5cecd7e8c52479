"""Every scenario, one seed here, a thousand in `make seeds`; and every seed that ever failed."""

import os
from functools import cache
from pathlib import Path

import pytest

from hubbub.simulation import list_scenarios, run
from hubbub.simulation.runner import Result

# A thousand seeds without a failure bound the failures per seed by 0.3 % (95 %).
SEEDS_SOAK = 1000
CHOSEN = {"discovery_large": 6, "services_crowd": 7}  # Fifty nodes; one that is run anyway.

REGRESSIONS = [
    (line.split()[0], int(line.split()[1]))
    for line in (Path(__file__).parent / "regressions.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


IS_SOAK = os.environ.get("HUBBUB_SOAK") == "1"


@cache
def result_of(scenario: str, seed: int) -> Result:
    return run(scenario, seed)


# Not for the soak: `make seeds` runs a thousand of each.
@pytest.mark.parametrize("scenario", list(list_scenarios()))
def test_every_seed_of_the_scenario_keeps_the_promises(scenario: str) -> None:
    assert result_of(scenario, CHOSEN.get(scenario, 0)).failure == ""


@pytest.mark.parametrize(("scenario", "seed"), REGRESSIONS)
def test_seed_that_failed_once_does_not_fail_again(scenario: str, seed: int) -> None:
    assert result_of(scenario, seed).failure == ""


@pytest.mark.soak
def test_many_nodes_with_a_thousand_topics_rest_at_less_than_200_bytes_a_second() -> None:
    seed, nodes = (37, 100) if IS_SOAK else (CHOSEN["discovery_large"], 50)
    result = result_of("discovery_large", seed)
    assert result.failure == ""
    assert result.counts["heartbeat"] >= 4 * nodes
    assert 0 < result.counts["rest_bytes_per_second"] <= 200


@pytest.mark.soak
def test_fifty_receivers_that_lose_the_same_frame_ask_for_it_less_than_three_times() -> None:
    seeds = range(SEEDS_SOAK if IS_SOAK else 2)
    results = [result_of("nak_implosion", seed) for seed in seeds]
    mean = sum(result.counts["naks_per_loss_percent"] for result in results) / len(results) / 100
    assert 1 <= mean <= 2.5
