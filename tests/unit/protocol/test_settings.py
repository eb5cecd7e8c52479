"""Settings: what cannot work is refused with the value and the bound."""

from dataclasses import fields

import pytest

from hubbub.errors import ConfigurationError
from hubbub.protocol.settings import Settings, make_settings

NUMBERS = [
    field.name
    for field in fields(Settings)
    if field.name not in ("nagging_policy", "clock")
]  # fmt: skip


def test_defaults_work() -> None:
    assert make_settings({}) == Settings()


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, "7", None, True, float("nan"), float("inf")])
def test_what_is_no_number_or_negative_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=name):
        make_settings({name: value})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"peer_timeout_ms": 500}, "must be more than heartbeat_ms=1000"),
        ({"window_bytes": 1000}, "below 16384"),
        ({"message_bytes": 2**31}, "above"),
        ({"hop_limit": 256}, "above 255"),
        ({"nagging_policy": "shout"}, "suspend, report, resync"),
        ({"clock": "sundial"}, "system, local, bus"),
        ({"cache_bytes": 0}, "must be more than 0"),
        ({"hartbeat_ms": 5}, "unknown option hartbeat_ms; there are .*heartbeat_ms"),
    ],
)
def test_error_says_what_would_work(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make_settings(options)


@pytest.mark.parametrize("name", ["holdback_ms", "rate_limit_bits", "nagging_window_ms"])
def test_zero_switches_off(name: str) -> None:
    assert getattr(make_settings({name: 0}), name) == 0
