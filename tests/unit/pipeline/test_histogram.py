"""Buckets of latencies."""

from hypothesis import given
from hypothesis import strategies as st

from hubbub.pipeline.histogram import bounds_ns, bucket_of

latencies = st.integers(-(1 << 62), 1 << 62)


@given(latencies)
def test_a_latency_lies_in_its_bucket_which_is_narrow(latency_ns: int) -> None:
    low, high = bounds_ns(bucket_of(latency_ns))
    assert low <= latency_ns <= high
    assert high - low <= abs(latency_ns) / 32


@given(st.integers(0, 1 << 62), st.integers(0, 1 << 62))
def test_buckets_are_in_the_order_of_latencies(one_ns: int, other_ns: int) -> None:
    few_ns, many_ns = sorted((one_ns, other_ns))
    assert bucket_of(few_ns) <= bucket_of(many_ns)
    assert bucket_of(-few_ns - 1) >= bucket_of(-many_ns - 1)


@given(st.integers(0, 2000))
def test_buckets_follow_each_other_without_a_hole(bucket: int) -> None:
    assert bounds_ns(bucket)[1] + 1 == bounds_ns(bucket + 1)[0]
