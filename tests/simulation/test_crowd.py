"""A crowd of nodes shares services: everybody is served once, by a bounded number of sends each."""

import os

import pytest

from hubbub.limits import DIRECT_FAN_OUT
from hubbub.simulation.crowd import Crowd

IS_SOAK = os.environ.get("HUBBUB_SOAK") == "1"
NODES, SERVICES = (10_000, 100) if IS_SOAK else (400, 8)


@pytest.mark.soak
def test_crowd_is_served_before_and_after_all_managers_died() -> None:
    work = Crowd(NODES, SERVICES).run()
    assert work.nodes == NODES
    assert work.fan_out_max <= DIRECT_FAN_OUT
    assert NODES <= work.delivered <= 2 * NODES
    # With copies a list is there as soon as the death of its manager is known.
    assert work.recovered_ms <= 1
    # A subscription is a request and an answer; a message as much for each who gets it.
    assert work.frames["SERVICE"] < 6 * NODES
    assert work.frames["ANSWER"] <= work.frames["SERVICE"] + work.frames["NOTICE"]


def test_service_with_thousands_of_subscribers_keeps_the_bound_of_its_manager() -> None:
    crowd = Crowd(2700, 1)  # More than one frame for each whom the manager sends to can name.
    crowd.subscribe()
    crowd.publish()
    assert crowd.fan_out_max == DIRECT_FAN_OUT
