"""Columns that several digests need: windows and buckets, in integers.

They are written as SQL: each operator of Python would be a call to Java of its own, and a small
step would spend more time on these than on its rows.
"""

from typing import Final

from hubbub.pipeline.histogram import DETAIL_BITS


def floor_to(column: str, step: int) -> str:
    """Round a number that is not negative down to a multiple."""
    return f"{column} - {column} % {step}L"


# `bucket` is that of `latency_ns`, as `histogram.bucket_of` has it. One column after the other,
# each used more than once by the next: as one expression they would be too large to plan. A
# logarithm of floats may be off by one next to a power of two: integers set it right.
BUCKET: Final = (
    "abs(latency_ns) AS size_ns",
    "int(log2(greatest(size_ns, 1L))) AS power",
    "power - int(shiftleft(1L, power) > size_ns) + int(shiftright(size_ns, power) > 1L) AS exact",
    f"greatest(exact - {DETAIL_BITS}, 0) AS shift",
    f"shiftleft(shift, {DETAIL_BITS}) + shiftright(size_ns, shift) AS place",
    "int(if(latency_ns < 0, -1 - place, place)) AS bucket",
)
