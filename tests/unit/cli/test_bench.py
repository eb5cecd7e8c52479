import pytest

from hubbub.cli.bench import summarise
from hubbub.cli.bench_plan import QUANTILES, Outcome, Plan, quantiles
from hubbub.cli.bench_worker import Count
from hubbub.cli.rates import percentile
from hubbub.message import Message, Source


def make_plan(benchmark: str, subscribers: int = 1) -> Plan:
    return Plan(
        benchmark=benchmark, link="multicast", size=100, seconds=1, subscribers=subscribers,
        loss=0, rate=None, mode="inline", interface="lo", domain="d",
    )  # fmt: skip


def make_message(sequence: int, payload: bytes = b"x", age_ns: int = 5) -> Message:
    source = Source("s", bytes(12), 1)
    return Message("/s", payload, source, sequence, sequence, sequence + age_ns, "multicast", None)


def test_throughput_is_that_of_the_slowest_subscriber() -> None:
    received = [
        Outcome(messages=1000, seconds=1.0, naks=2, cpu_seconds=0.5, quantiles_ns=[1000, 3000]),
        Outcome(messages=990, seconds=2.0, naks=3, cpu_seconds=0.5, quantiles_ns=[2000, 9000]),
    ]
    published = Outcome(messages=1000, seconds=1.5, repairs=7, cpu_seconds=1.0)
    result = summarise(make_plan("throughput", 2), published, received)
    assert result["messages_per_second"] == 495
    assert result["megabytes_per_second"] == 0.05
    assert (result["sent"], result["received"], result["lost"]) == (1000, 1990, 10)
    assert (result["repairs"], result["naks"], result["cpu_seconds"]) == (7, 5, 2.0)
    assert (result["p50_us"], result["p99_us"]) == (3, 9)
    assert result["latency_kind"] == "one way, under load"


def test_latency_is_the_round_trip_of_the_publisher() -> None:
    published = Outcome(
        messages=10, dropped=1, seconds=2.0, quantiles_ns=[4000] * 9, longest_ns=8000
    )
    result = summarise(make_plan("latency"), published, [Outcome(messages=10)])
    assert (result["sent"], result["received"], result["lost"]) == (10, 9, 1)
    assert (result["messages_per_second"], result["p50_us"], result["max_us"]) == (4.5, 4, 8)
    assert result["latency_kind"] == "round trip"


@pytest.mark.parametrize("count", [1, 2, QUANTILES, QUANTILES + 1, 12_345])
def test_thinned_out_samples_have_the_same_percentiles(count: int) -> None:
    samples = list(range(count))
    thin = quantiles(samples[::-1])
    assert len(thin) <= QUANTILES
    assert (thin[0], thin[-1]) == (0, count - 1)
    for share in (0.5, 0.99):
        assert abs(percentile(thin, share) - percentile(samples, share)) <= count / 500


def test_percentile_of_nothing_is_zero() -> None:
    assert percentile([], 0.5) == 0


def test_count_tells_duplicates_from_new_messages() -> None:
    count = Count()
    assert not any(count.take(make_message(sequence)) for sequence in (1, 2, 2, 1, 3))
    assert (count.messages, count.duplicates) == (3, 2)
    assert count.samples_ns == [5, 5, 5]


def test_empty_message_is_the_last() -> None:
    count = Count()
    count.take(make_message(1))
    assert count.take(make_message(2, b""))
    assert (count.messages, count.first_ns, count.last_ns) == (1, 6, 7)
