"""The arithmetic of `hubbub hz`, `bw` and `delay` against brute force on all that was seen."""

import statistics
from itertools import pairwise
from random import Random

import pytest

from hubbub.cli.rates import (
    RESERVOIR_SAMPLES,
    DelayedTopic,
    Extent,
    PacedTopic,
    Reservoir,
    SizedTopic,
    Spread,
    Topic,
    Topics,
)
from hubbub.limits import MS, SECOND
from hubbub.message import Message, Source

SOURCE = Source("lidar", bytes(12), 1)
START_NS = 1_700_000_000 * SECOND


def make_message(
    sequence: int,
    published_ns: int = 0,
    *,
    latency_ns: int = 0,
    size_bytes: int = 1,
    subject: str = "/a",
    source: Source = SOURCE,
) -> Message:
    published_ns += START_NS
    return Message(
        subject, bytes(size_bytes), source, sequence, published_ns, published_ns + latency_ns,
        "multicast", None,
    )  # fmt: skip


def make_messages(seed: int, count: int = 500) -> list[Message]:
    random = Random(seed)
    published_ns = 0
    messages = []
    for sequence in range(1, count + 1):
        published_ns += random.randrange(3 * MS)
        messages.append(
            make_message(
                sequence,
                published_ns,
                latency_ns=random.randrange(-1000, 1_000_000),
                size_bytes=random.randrange(2000),
            )
        )
    return messages


def split(messages: list[Message], seed: int) -> list[list[Message]]:
    """Cut messages into batches of any size, as they come from a subscription."""
    random = Random(seed)
    batches = []
    while messages:
        size = random.randrange(1, 40)
        batches.append(messages[:size])
        messages = messages[size:]
    return batches


def add_all(topic: Topic, messages: list[Message], seed: int) -> None:
    for batch in split(messages, seed):
        topic.add(batch)


def test_nothing_has_no_mean_and_no_extremes() -> None:
    extent, spread = Extent(), Spread()
    extent.add([])
    assert (extent.mean, extent.smallest, extent.largest) == (None, None, None)
    assert spread.deviation is None


def test_deviation_of_large_numbers_is_exact() -> None:
    spread = Spread()
    values = [10**15, 10**15 + 1, 10**15 + 2]
    spread.add(values[:1])
    spread.add(values[1:])
    assert spread.deviation == pytest.approx(statistics.pstdev([0, 1, 2]), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_pace_is_that_of_all_messages(seed: int) -> None:
    messages = make_messages(seed)
    topic = PacedTopic("/a", SOURCE)
    add_all(topic, messages, seed)
    stamps_ns = [one.published_ns for one in messages]
    gaps_ns = [after - before for before, after in pairwise(stamps_ns)]
    assert (topic.messages, topic.lost, topic.gaps_ns.count) == (500, 0, 499)
    assert (topic.gaps_ns.smallest, topic.gaps_ns.largest) == (min(gaps_ns), max(gaps_ns))
    assert topic.gaps_ns.deviation == pytest.approx(statistics.pstdev(gaps_ns))
    assert topic.rate_in_all == pytest.approx(1e9 / statistics.mean(gaps_ns))


@pytest.mark.parametrize("seed", range(5))
def test_hole_is_lost_and_no_gap_of_the_publisher(seed: int) -> None:
    random = Random(seed)
    sent = make_messages(seed)
    came = [one for one in sent if random.random() < 0.8]
    topic = PacedTopic("/a", SOURCE)
    add_all(topic, came, seed)
    gaps_ns = [
        after.published_ns - before.published_ns
        for before, after in pairwise(came)
        if after.sequence == before.sequence + 1
    ]
    assert topic.lost == came[-1].sequence - came[0].sequence + 1 - len(came) > 0
    assert (topic.gaps_ns.count, topic.gaps_ns.total) == (len(gaps_ns), sum(gaps_ns))
    assert (topic.gaps_ns.smallest, topic.gaps_ns.largest) == (min(gaps_ns), max(gaps_ns))


def test_who_comes_late_has_lost_nothing_of_what_was_before() -> None:
    topic = Topic("/a", SOURCE)
    topic.add([make_message(1000), make_message(1001)])
    topic.add([make_message(1004)])
    assert (topic.messages, topic.lost) == (3, 2)


@pytest.mark.parametrize("seed", range(5))
def test_sizes_are_those_of_all_messages(seed: int) -> None:
    messages = make_messages(seed)
    topic = SizedTopic("/a", SOURCE)
    add_all(topic, messages, seed)
    sizes_bytes = [len(one.payload) for one in messages]
    assert topic.sizes_bytes.mean == pytest.approx(statistics.mean(sizes_bytes))
    assert (topic.sizes_bytes.smallest, topic.sizes_bytes.largest) == (
        min(sizes_bytes), max(sizes_bytes),
    )  # fmt: skip
    span_s = (messages[-1].published_ns - messages[0].published_ns) / SECOND
    assert topic.byte_rate_in_all == pytest.approx(sum(sizes_bytes[1:]) / span_s)


@pytest.mark.parametrize("seed", range(5))
def test_latencies_are_those_of_all_messages_while_they_fit(seed: int) -> None:
    messages = make_messages(seed)
    assert len(messages) <= RESERVOIR_SAMPLES
    topic = DelayedTopic("/a", SOURCE)
    add_all(topic, messages, seed)
    latencies_ns = [one.received_ns - one.published_ns for one in messages]
    ranked_ns = sorted(latencies_ns)
    assert topic.percentiles_ns(0.5, 0.99) == [ranked_ns[250], ranked_ns[495]]
    assert topic.latencies_ns.largest == max(latencies_ns)
    assert topic.negative == sum(one < 0 for one in latencies_ns)
    changes_ns = [abs(after - before) for before, after in pairwise(latencies_ns)]
    assert topic.jitter_ns == pytest.approx(statistics.mean(changes_ns))


def test_single_message_has_neither_pace_nor_jitter() -> None:
    paced, sized = PacedTopic("/a", SOURCE), SizedTopic("/a", SOURCE)
    delayed = DelayedTopic("/a", SOURCE)
    for topic in (paced, sized, delayed):
        topic.add([make_message(1, latency_ns=7)])
        assert (topic.messages, topic.lost, topic.rate_in_all) == (1, 0, None)
    assert (paced.gaps_ns.deviation, sized.byte_rate_in_all, delayed.jitter_ns) == (None,) * 3
    assert delayed.percentiles_ns(0.5, 0.99) == [7, 7]


def test_clock_that_is_set_back_gives_no_rate_instead_of_a_wrong_one() -> None:
    topic = PacedTopic("/a", SOURCE)
    topic.add([make_message(1, 5 * SECOND), make_message(2, 1 * SECOND)])
    assert topic.rate_in_all is None
    assert topic.gaps_ns.smallest == -4 * SECOND


def test_rate_is_of_the_interval_alone() -> None:
    topic = SizedTopic("/a", SOURCE)
    topic.add([make_message(number, size_bytes=10) for number in range(1, 31)])
    assert (topic.rate(2.0), topic.byte_rate(2.0)) == (15, 150)
    topic.begin_interval()
    assert (topic.rate(2.0), topic.byte_rate(2.0)) == (0, 0)
    topic.add([make_message(31, size_bytes=4), make_message(32, size_bytes=6)])
    assert (topic.rate(0.5), topic.byte_rate(0.5)) == (4, 20)


def test_last_interval_can_take_in_the_one_before() -> None:
    topics = Topics(Topic)
    topics.add([make_message(number) for number in range(1, 11)])
    topics.begin_interval()
    topics.add([make_message(number) for number in range(11, 15)])
    topics.begin_interval()
    topics.add([make_message(15)])
    topics.reopen_interval()
    assert [topic.rate(1.0) for topic in topics] == [5]


def test_reservoir_keeps_everything_that_fits_in_order() -> None:
    reservoir = Reservoir(10)
    reservoir.add(list(range(7)))
    reservoir.add([7, 8, 9])
    assert list(reservoir.samples) == list(range(10))


def test_reservoir_is_bounded_and_fair() -> None:
    # Each of 2,000 numbers is kept with a chance of 1/20; 400 reservoirs keep 20 of it on average.
    kept = [0] * 2000
    for seed in range(400):
        reservoir = Reservoir(100, Random(seed))
        for first in range(0, 2000, 80):
            reservoir.add(list(range(first, first + 80)))
        assert len(reservoir.samples) == len(set(reservoir.samples)) == 100
        for value in reservoir.samples:
            kept[value] += 1
    for first in range(0, 2000, 100):  # 2,000 of each hundred, with a deviation of about 45.
        assert 1750 < sum(kept[first : first + 100]) < 2250


def test_memory_does_not_grow_with_the_messages() -> None:
    topic = DelayedTopic("/a", SOURCE)
    for first in range(1, 50_001, 1000):
        topic.add(
            [make_message(number, latency_ns=number) for number in range(first, first + 1000)]
        )
    assert len(topic._reservoir.samples) == RESERVOIR_SAMPLES
    p50_ns, p99_ns = topic.percentiles_ns(0.5, 0.99)
    assert 20_000 < p50_ns < 30_000 < 48_000 < p99_ns <= 50_000


def test_topics_are_told_apart_however_their_messages_are_mixed() -> None:
    other = Source("radar", bytes(12), 1)
    topics = Topics(PacedTopic)
    mixed = []
    for number in range(1, 51):
        mixed += [
            make_message(number, number * MS),
            make_message(number, number * MS, source=other),
            make_message(2 * number, number * MS, subject="/b"),
        ]
    for start in range(0, len(mixed), 7):
        topics.add(mixed[start : start + 7])
    seen = [(one.subject, one.source.name, one.messages, one.lost) for one in topics]
    assert seen == [("/a", "lidar", 50, 0), ("/a", "radar", 50, 0), ("/b", "lidar", 50, 49)]
    assert all(one.rate_in_all == pytest.approx(1000) for one in topics)


def test_equal_subjects_and_sources_are_one_topic_though_not_one_object() -> None:
    same = Source("lidar", bytes(12), 1)
    topics = Topics(Topic)
    topics.add([make_message(1), make_message(2, subject="".join(["/", "a"]), source=same)])
    assert [one.messages for one in topics] == [2]


def test_publisher_that_started_again_is_a_new_row_and_no_loss() -> None:
    topics = Topics(Topic)
    topics.add([make_message(number) for number in (7, 8, 9)])
    again = Source(SOURCE.name, SOURCE.id, incarnation=2)
    topics.add([make_message(number, source=again) for number in (1, 2)])
    assert [(one.messages, one.lost) for one in topics] == [(3, 0), (2, 0)]


def test_message_that_two_patterns_match_is_counted_once() -> None:
    topics = Topics(PacedTopic, can_repeat=True)
    numbers = [1, 2, 1, 2, 3, 4, 3, 4, 7, 7]
    topics.add([make_message(number, number * MS) for number in numbers[:3]])
    topics.add([make_message(number, number * MS) for number in numbers[3:]])
    topics.add([make_message(7, 7 * MS)])
    (topic,) = topics
    assert (topic.messages, topic.lost, topic.gaps_ns.count) == (5, 2, 3)


def test_topics_beyond_the_bound_are_counted_together() -> None:
    topics = Topics(Topic, topics_max=3)
    for _ in range(2):
        topics.add([make_message(1, subject=f"/{number}") for number in range(5)])
    assert (len(topics), topics.others) == (3, 4)
    assert [one.subject for one in topics] == ["/0", "/1", "/2"]
