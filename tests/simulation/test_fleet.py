"""Thousands of components: the work of gateways grows with matches, not with components."""

import os

import pytest

from hubbub.limits import SECOND
from hubbub.simulation.fleet import Fleet

IS_SOAK = os.environ.get("HUBBUB_SOAK") == "1"


@pytest.mark.soak
def test_relay_work_grows_with_matches_and_not_with_components() -> None:
    vehicles, seconds = (1000, 5) if IS_SOAK else (60, 1)
    work = Fleet(vehicles, 10).run(seconds * SECOND)
    assert work.missed == 0
    assert work.frames >= vehicles * 10 * seconds * 0.9
    # Each sample for the cell concerns the nine others of it; those inside, one component each.
    assert work.heard >= (vehicles - 1) * work.frames
    assert work.relayed <= 1.5 * work.taken < 0.1 * work.heard


def test_more_components_that_do_not_match_cost_a_gateway_nothing_outside() -> None:
    few, many = Fleet(30, 2).run(SECOND), Fleet(30, 20).run(SECOND)
    assert few.frames == pytest.approx(many.frames, rel=0.05)
    outside_few = few.handed - few.taken
    outside_many = many.handed - many.taken
    assert outside_many <= outside_few + 30 * 20 * 12  # Own interests are told inside, too.
