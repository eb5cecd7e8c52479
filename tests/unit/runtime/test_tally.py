"""Losses of a period are merged into ranges, bounded, and counted exactly."""

from hubbub.runtime.tally import Loss, Tally
from tests.unit.runtime.fakes import LIDAR, RADAR


def test_nothing_lost_is_nothing_to_take() -> None:
    assert Tally().take() is None


def test_neighbours_become_one_range() -> None:
    tally = Tally()
    tally.add("/a", LIDAR, 5, 3)
    tally.add("/a", LIDAR, 8, 2)
    assert tally.take() == Loss(5, (("/a", LIDAR, 5, 9),))


def test_a_hole_begins_another_range() -> None:
    tally = Tally()
    tally.add("/a", LIDAR, 5, 3)
    tally.add("/a", LIDAR, 9, 1)
    assert tally.take() == Loss(4, (("/a", LIDAR, 5, 7), ("/a", LIDAR, 9, 9)))


def test_topics_and_sources_are_kept_apart_and_merged_across_each_other() -> None:
    tally = Tally()
    tally.add("/a", LIDAR, 1, 1)
    tally.add("/a", RADAR, 2, 1)
    tally.add("/b", LIDAR, 2, 1)
    tally.add("/a", LIDAR, 2, 1)
    assert tally.take() == Loss(4, (("/a", LIDAR, 1, 2), ("/a", RADAR, 2, 2), ("/b", LIDAR, 2, 2)))


def test_ranges_beyond_the_bound_are_counted_and_not_listed() -> None:
    tally = Tally(ranges_max=2)
    for first in (1, 3, 5, 7):
        tally.add("/a", LIDAR, first, 1)
    tally.add("/b", LIDAR, 1, 10)
    assert tally.take() == Loss(14, (("/a", LIDAR, 1, 1), ("/a", LIDAR, 3, 3)))


def test_taking_begins_a_new_period_and_keeps_the_total() -> None:
    tally = Tally(ranges_max=1)
    tally.add("/a", LIDAR, 1, 1)
    tally.take()
    tally.add("/a", LIDAR, 2, 1)
    assert tally.take() == Loss(1, (("/a", LIDAR, 2, 2),))
    assert tally.take() is None
    assert tally.total == 2
