"""Services of processes without multicast: managers join, leave politely, and are killed.

Twenty processes share ten services, and the node of the test publishes 1,000 messages a second to
them all together. Each process wants three of the services, the test all of them: 7,000 deliveries
a second. If all wanted all it would be 21,000, more than two cores do. Each second one that manages
something goes, and another comes in its place. `make test` has three processes, two services and
one that goes. The full count needs both cores: where others want them, too, the rate is not kept.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.integration.bus import IS_SOAK
from tests.integration.services_crowd import Town, founding
from tests.integration.services_story import (
    BLACKOUT_S,
    CONVERGENCE_S,
    DETECTION_S,
    HAND_OVER_S,
    MARGIN_S,
    Story,
    worst,
)

PROCESSES, SERVICES, WANTED, EVENTS, RATE_HZ = (
    (20, 10, 3, 60, 1000) if IS_SOAK else (3, 2, 2, 1, 50)
)
KEPT = 0.95  # Of the rate, and of the events.


@pytest.fixture
def town() -> Iterator[Town]:
    with founding(SERVICES) as made:
        made.fill(PROCESSES, WANTED)
        yield made


def disturb(town: Town, remove: Callable[[str], None]) -> None:
    """Let a manager go each second while messages flow, until all is as it should be again."""
    start_s, events = time.monotonic(), 0
    with town.publishing(RATE_HZ):
        for second in range(EVENTS):
            time.sleep(max(0.0, start_s + second - time.monotonic()))
            last_s = time.monotonic()
            town.welcome()
            manager = town.manager()
            if manager is not None:
                events += 1
                remove(manager)
        town.welcome(CONVERGENCE_S)
        town.settle(CONVERGENCE_S)
    assert events >= KEPT * EVENTS
    assert last_s - start_s <= (EVENTS - 1) / KEPT + MARGIN_S


def check_what_always_holds(story: Story, convergence_s: float) -> None:
    # Seconds at 50 Hz say nothing of a rate.
    assert len(story.published) >= KEPT * story.planned or not IS_SOAK
    assert story.duplicates() == []
    assert worst(story.convergences()) <= (convergence_s, "")
    assert worst(story.phantoms()) <= (convergence_s, "")
    assert worst(story.absences()) <= (convergence_s, "")


@pytest.mark.soak
def test_joins_and_polite_leaves_lose_no_message(town: Town) -> None:
    disturb(town, town.send_away)
    town.gather(lambda: not town.story.losses(), DETECTION_S)
    check_what_always_holds(town.story, HAND_OVER_S)
    assert town.story.losses() == []


@pytest.mark.soak
def test_killed_managers_cost_no_more_than_the_time_to_notice(town: Town) -> None:
    disturb(town, town.kill)
    story = town.story
    town.gather(lambda: all(map(story.is_excused, story.losses())), DETECTION_S)
    check_what_always_holds(story, CONVERGENCE_S)
    assert [loss for loss in story.losses() if not story.is_excused(loss)] == []
    assert worst(story.blackouts()) <= (BLACKOUT_S, "")
