"""What a topic says of its type: a short name for people, and a hash that decides."""

from functools import reduce
from operator import or_

import msgspec
import pytest

from hubbub.errors import ConfigurationError
from hubbub.limits import (
    FRAME_BYTES_MIN,
    MS,
    SCHEMA_NAME_BYTES_MAX,
    SECOND,
    SUBJECT_BYTES_MAX,
    TIME_MAX,
)
from hubbub.schema import Schema, schema_of
from tests.harness import Lan


class Temperature(msgspec.Struct):
    celsius: float


def union_of(count: int, length: int) -> object:
    """Make a type that is named by all its members."""
    kinds = [
        msgspec.defstruct(f"{'n' * length}{place}", [("x", int)], tag=f"t{place}")
        for place in range(count)
    ]
    return reduce(or_, kinds)


def test_type_is_named_and_plain_bytes_are_not() -> None:
    assert schema_of(Temperature).name == "Temperature"
    assert schema_of(None) == Schema("", 0)


def test_type_that_cannot_be_encoded_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot be encoded"):
        schema_of(object)


@pytest.mark.parametrize("letter", ["n", "\N{EURO SIGN}", "\N{GRINNING FACE}"])
@pytest.mark.parametrize("length", [16, 64, 65, 70_000])
def test_name_is_never_longer_than_its_bound(letter: str, length: int) -> None:
    name = schema_of(msgspec.defstruct(letter * length, [("x", int)])).name
    assert len(name.encode()) <= SCHEMA_NAME_BYTES_MAX
    assert name.startswith(letter)


def test_members_of_a_union_may_be_told_apart_by_numbers() -> None:
    kinds = [msgspec.defstruct(f"K{place}", [("x", int)], tag=place) for place in range(3)]
    assert schema_of(kinds[0] | kinds[1]) != schema_of(kinds[0] | kinds[2])


def test_long_names_that_are_shortened_alike_are_still_different_types() -> None:
    one, other = schema_of(union_of(3, 30)), schema_of(union_of(4, 30))
    assert one.name == other.name and one.hash != other.hash


@pytest.mark.parametrize("frame_bytes_max", [FRAME_BYTES_MIN, 1400])
@pytest.mark.parametrize("replayed_ns", [0, TIME_MAX])
@pytest.mark.parametrize("is_late", [False, True], ids=["declared", "granted"])
def test_longest_names_fit_a_frame(frame_bytes_max: int, is_late: bool, replayed_ns: int) -> None:
    subject, schema = "/" + "s" * (SUBJECT_BYTES_MAX - 1), schema_of(union_of(900, 60))
    lan = Lan(1, frame_bytes_max=frame_bytes_max)  # It refuses a larger frame.
    publisher = lan.nodes[0]
    subscribers = [] if is_late else lan.open(1)
    topic = publisher.core.publish_on(
        lan.now, subject, schema_name=schema.name, schema_hash=schema.hash, replayed_ns=replayed_ns
    )
    subscribers = subscribers or lan.open(1)
    lan.publish(publisher, topic, b"x")
    lan.run(1 * SECOND + 10 * MS)
    assert subscribers[0].payloads(subject) == [b"x"]


def test_schema_that_is_given_is_taken_as_it_is() -> None:
    assert schema_of(Schema("Temperature", 7)) == Schema("Temperature", 7)
    assert schema_of(Schema()) == schema_of(None)


@pytest.mark.parametrize("schema", [Schema("T", 0), Schema("", 7), Schema("T", 1 << 64)])
def test_half_a_schema_is_refused(schema: Schema) -> None:
    with pytest.raises(ConfigurationError, match="a name, and a hash"):
        schema_of(schema)
