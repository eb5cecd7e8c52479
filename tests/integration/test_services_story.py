"""Each thing that is demanded of processes that share services is missed where it is not so."""

from collections import Counter
from math import inf

from tests.integration.services_story import (
    BLACKOUT_S,
    CONVERGENCE_S,
    DETECTION_S,
    Kill,
    Member,
    Silence,
    Story,
    Told,
    worst,
)

IDS = [f"{number:024x}" for number in range(6)]


def tell(*members: Member, told: list[Told], kills: list[Kill] | None = None) -> Story:
    """Tell of one service, for a minute, with a message each second."""
    story = Story(["news"], {one.id: one for one in members}, told, over_s=60)
    story.published = [float(second) for second in range(50)]
    story.kills = kills or []
    return story


def member(number: int, from_s: float = 0, to_s: float = inf, lost: tuple[int, ...] = ()) -> Member:
    made = Member(IDS[number], ["news"], from_s, from_s, to_s, to_s)
    made.had = Counter(second for second in range(50) if second not in lost)
    return made


def told(number: int, at_s: float, *listed: int, is_copy: bool = False) -> Told:
    return Told(IDS[number], "news", at_s, is_copy, 1, frozenset(IDS[one] for one in listed))


def test_list_that_is_right_at_once_took_no_time() -> None:
    story = tell(member(0), member(1), told=[told(0, 0, 0, 1)])
    assert worst(story.convergences())[0] == worst(story.absences())[0] == 0


def test_newcomer_that_is_listed_late_is_missed_as_long() -> None:
    story = tell(member(0), member(1, 10), told=[told(0, 0, 0), told(0, 25, 0, 1)])
    assert worst(story.convergences())[0] == worst(story.absences())[0] == 15 > CONVERGENCE_S


def test_newcomer_that_is_never_listed_is_missed() -> None:
    story = tell(member(0), member(1, 10), told=[told(0, 0, 0)])
    assert worst(story.convergences())[0] == inf
    assert worst(story.absences())[0] == 50


def test_dead_one_that_stays_on_the_list_is_seen() -> None:
    story = tell(member(0), member(1, 0, 10), told=[told(0, 0, 0, 1)])
    assert worst(story.convergences())[0] == inf
    assert worst(story.phantoms())[0] == 50 > CONVERGENCE_S


def test_stranger_from_an_old_copy_counts_from_when_its_manager_began() -> None:
    lists = [told(0, 0, 0, 1), told(0, 12, 0, 2), told(2, 30, 1, 2), told(2, 34, 2)]
    story = tell(member(0, 0, 28), member(1, 0, 10), member(2, 20), told=lists)
    assert worst(story.phantoms())[0] == 4
    story.members[IDS[2]].opened_s = 5  # It knew the one that died.
    assert worst(story.phantoms())[0] == 24


def test_service_without_a_manager_is_not_in_order() -> None:
    story = tell(member(0), member(1, 0, 10), told=[told(1, 0, 0, 1)])
    assert worst(story.convergences())[0] == inf


def test_loss_and_duplicate_of_any_member_are_seen() -> None:
    story = tell(member(0), member(1, 0, inf, (20,)), told=[told(0, 0, 0, 1)])
    story.members[IDS[0]].had = Counter({**dict.fromkeys(range(50), 1), 7: 2})
    assert [(one.member.id, one.published_s) for one in story.losses()] == [(IDS[1], 20)]
    assert story.duplicates() == [(IDS[0], 7)]


def kill_of(story: Story, number: int, at_s: float) -> None:
    story.kills.append(Kill(at_s, at_s, IDS[number], frozenset(["news"])))
    story.members[IDS[number]].parting_s = story.members[IDS[number]].gone_s = at_s


def test_loss_after_a_kill_is_excused_only_if_those_died_too_who_had_the_list() -> None:
    everybody = [member(number, 0, inf, (20, 22)) for number in range(6)]
    copies = [told(number, 0, *range(6), is_copy=True) for number in (1, 2)]
    story = tell(*everybody, told=[told(0, 0, *range(6)), *copies])
    kill_of(story, 0, 20.1)
    lost = {one.published_s: story.is_excused(one) for one in story.losses()}
    assert lost == {20: True, 22: False}
    story.members[IDS[1]].gone_s = 21
    assert not all(map(story.is_excused, story.losses()))
    story.members[IDS[2]].gone_s = 20.1 + DETECTION_S - 1
    assert all(map(story.is_excused, story.losses()))


def test_loss_of_what_waited_for_a_manager_is_excused_if_that_was_killed_when_it_began() -> None:
    copies = [told(number, 0, *range(6), is_copy=True) for number in (2, 3)]
    everybody = [member(number, 0, inf, (18,)) for number in range(6)]
    story = tell(*everybody, told=[*copies, told(1, 20, *range(6))])
    kill_of(story, 0, 17.5)
    assert not any(map(story.is_excused, story.losses()))
    kill_of(story, 1, 20.1)
    assert all(map(story.is_excused, story.losses()))


def test_subscription_that_nobody_has_a_copy_of_may_be_lost_with_its_manager() -> None:
    copies = [told(number, 0, *range(5), is_copy=True) for number in (1, 2)]
    everybody = [*(member(number) for number in range(5)), member(5, 20, inf, (22, 30))]
    story = tell(*everybody, told=[told(0, 0, *range(6)), *copies])
    kill_of(story, 0, 20.1)
    lost = {one.published_s: story.is_excused(one) for one in story.losses()}
    assert lost == {22: True, 30: False}


def test_blackout_counts_from_the_kill_of_its_manager_and_of_no_other() -> None:
    copies = [told(number, 0, *range(6), is_copy=True) for number in (4, 5)]
    story = tell(*(member(number) for number in range(6)), told=copies)
    story.members[IDS[0]].silences = [Silence("news", 20, 26)]
    kill_of(story, 1, 25)
    story.kills[0] = story.kills[0]._replace(names=frozenset(["other"]))
    assert worst(story.blackouts())[0] == 6 > BLACKOUT_S
    kill_of(story, 2, 19.9)
    assert worst(story.blackouts())[0] == 26 - 19.9
    kill_of(story, 3, 22)
    assert worst(story.blackouts())[0] == 4
