"""Which number a type of samples has on the wire, and which subject it is about.

Numbers are codes as in the data sheets of transducers (TEDS): the first ones are given, a program
enters its own with `register_data_type`. A subject that was never entered has a number of its own
all the same, above 2^31 and made from its name, so that no table is needed to begin with.
"""

from enum import IntEnum
from zlib import crc32

from hubbub.errors import ConfigurationError
from hubbub.given import is_whole
from hubbub.subjects import check_subject
from hubbub.wire.timed import DERIVED_TYPES


class DataTypeId(IntEnum):
    """The types that are there from the beginning; 0 is no type, and starts nothing."""

    UNKNOWN = 0
    VEHICLE_SPEED = 1
    ENGINE_RPM = 2
    OBSTACLE_DISTANCE = 3


_subjects: dict[int, str] = {
    DataTypeId.VEHICLE_SPEED: "/vehicle/speed",
    DataTypeId.ENGINE_RPM: "/engine/rpm",
    DataTypeId.OBSTACLE_DISTANCE: "/obstacle/distance",
}
_numbers: dict[str, int] = {subject: number for number, subject in _subjects.items()}


def register_data_type(number: int, subject: str) -> None:
    """Give a subject a number of its own, the same in every program that makes or wants it.

    hubbub.register_data_type(100, "/plant/line1/temp")
    """
    check_subject(subject)
    if not is_whole(number) or not 0 < number < DERIVED_TYPES:
        raise ConfigurationError(f"{number!r} is no data type: give a number from 1 to 2^31 - 1")
    if _subjects.get(number, subject) != subject:
        raise ConfigurationError(f"data type {number} is {_subjects[number]} already")
    if _numbers.get(subject, number) != number:
        raise ConfigurationError(f"{subject} is data type {_numbers[subject]} already")
    _subjects[int(number)] = subject
    _numbers[subject] = int(number)


def find_data_type(what: str | int) -> tuple[int, str]:
    """Return number and subject of a type, given one of them; an unknown number is refused."""
    if isinstance(what, str):
        check_subject(what)
        number = _numbers.get(what)
        return (derive_number(what) if number is None else number), what
    if not isinstance(what, int) or what not in _subjects:
        known = ", ".join(f"{number} {subject}" for number, subject in sorted(_subjects.items()))
        raise ConfigurationError(
            f"data type {what!r} is unknown here: call register_data_type({what!r}, subject) first;"
            f" there are {known}"
        )
    return int(what), _subjects[what]


def derive_number(subject: str) -> int:
    """Return the number of a subject that was given none."""
    return DERIVED_TYPES | crc32(subject.encode()) & (DERIVED_TYPES - 1)


def subject_of(number: int) -> str | None:
    """Return the subject of a number, if it was entered here."""
    return _subjects.get(number)
