"""What a task publishes again comes once, whichever of its nodes publishes it."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hubbub import limits, repeats
from hubbub.message import Source
from hubbub.protocol.delivery import LOCAL, Delivery
from hubbub.repeats import Repeats, is_repeatable, repeatable_id


def delivery(first: int, count: int, task: str = "task", subject: str = "/a") -> Delivery:
    topic: Any = SimpleNamespace(source=Source("spark", repeatable_id(task), 1), subject=subject)
    payloads = [b"%d" % n for n in range(first, first + count)]
    return Delivery(topic, first, payloads, range(first, first + count), 0, LOCAL)


def test_id_tells_the_task_and_two_nodes_of_it_differ() -> None:
    ids = {repeatable_id("query-0-1") for _ in range(20)}
    assert len(ids) > 1 and len({one[: repeats.TASK_BYTES] for one in ids}) == 1
    assert all(len(one) == 12 and is_repeatable(one) for one in ids)
    assert repeatable_id("query-0-2")[: repeats.TASK_BYTES] not in {
        one[: repeats.TASK_BYTES] for one in ids
    }
    assert not is_repeatable(bytes(12))


@given(st.lists(st.tuples(st.integers(1, 20), st.sampled_from("ab")), max_size=30))
def test_any_mix_of_attempts_gives_each_message_once_and_in_order(
    steps: list[tuple[int, str]],
) -> None:
    """Two nodes publish 1, 2, ... in runs of any length, one behind or before the other."""
    memory, got = Repeats(), []
    reached = {"a": 1, "b": 1}
    for count, node in steps:
        new = memory.pass_new(delivery(reached[node], count))
        reached[node] += count
        if new is not None:
            assert list(new.published_ns) == [int(one) for one in new.payloads]
            assert new.first == int(new.payloads[0])
            got += new.payloads
    assert got == [b"%d" % n for n in range(1, max(reached.values()))]


def test_subjects_and_tasks_are_apart() -> None:
    memory = Repeats()
    for task in ("one", "two"):
        for subject in ("/a", "/b"):
            assert memory.pass_new(delivery(1, 3, task, subject)) is not None
            assert memory.pass_new(delivery(1, 3, task, subject)) is None


def test_what_is_remembered_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(repeats, "REPEATABLE_TOPICS_MAX", 2)
    assert limits.REPEATABLE_TOPICS_MAX > 2
    memory = Repeats()
    for task in ("one", "two", "three"):
        memory.pass_new(delivery(1, 3, task))
    assert memory.pass_new(delivery(1, 3, "three")) is None
    assert memory.pass_new(delivery(1, 3, "one")) is not None
