"""Options of the data source: what they mean, and that a wrong one is named."""

from pathlib import Path

import pytest

from hubbub.errors import ConfigurationError, SubjectError
from hubbub.pipeline.source.options import EARLIEST, LATEST, Options, take_options


def test_nothing_but_a_path_reads_all_messages() -> None:
    options = take_options({"path": "file:///data/store"})
    assert options == Options(Path("/data/store"))
    assert options.starting is None and options.ending == LATEST and options.is_loss_failure


def test_names_are_compared_without_case() -> None:
    options = take_options(
        {
            "PATH": "s",
            "Subjects": "/a/*, /b/...,/a/*",
            "STARTINGOFFSETS": EARLIEST,
            "maxrowspertrigger": "10",
            "failOnDataLoss": "False",
        }
    )
    assert options.subjects == ("/a/*", "/b/...")
    assert options.starting == EARLIEST and options.rows_per_trigger == 10
    assert not options.is_loss_failure


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("latest", LATEST),
        ('{"ab12": 7}', {"ab12": 7}),
        ("2026-11-16T08:00:00Z", 1_794_816_000_000_000_000),
        ("2026-11-16T08:00:00", 1_794_816_000_000_000_000),
        ("2026-11-16T09:00:00.000001+01:00", 1_794_816_000_000_001_000),
    ],
)
def test_place_in_a_recording(text: str, where: object) -> None:
    assert take_options({"path": "s", "startingOffsets": text}).starting == where
    assert take_options({"path": "s", "endingOffsets": text}).ending == where


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("path", "", "no store named"),
        ("paths", '["a","b"]', "one path"),
        ("table", "gaps", "table='gaps': there are messages, events"),
        ("startingOffsets", "yesterday", "startingOffsets='yesterday': write earliest"),
        ("startingOffsets", '{"a": -1}', "-1 of a must be at least 0"),
        ("startingOffsets", "{", "is not JSON"),
        ("maxRowsPerTrigger", "0", "maxRowsPerTrigger='0' must be a whole number"),
        ("failOnDataLoss", "perhaps", "must be true or false"),
        ("subject", "/a", "no option subject; there are path"),
    ],
)
def test_wrong_option_is_named(option: str, value: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text.replace("(", r"\(")):
        take_options({"path": "s", option: value})


def test_malformed_pattern_is_refused() -> None:
    with pytest.raises(SubjectError, match="does not begin with '/'"):
        take_options({"path": "s", "subjects": "a"})


def test_counters_have_no_subject() -> None:
    with pytest.raises(ConfigurationError, match="a counter has none"):
        take_options({"path": "s", "table": "counters", "subjects": "/a"})
