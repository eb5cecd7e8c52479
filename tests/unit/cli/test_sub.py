import json

import pytest

from hubbub import GapAbandoned, PeerLeft, SlowConsumer, Source
from hubbub.cli.looking import _is_odd
from hubbub.cli.sub import _tell

SOURCE = Source("lidar", bytes(12), 1)
GAP = GapAbandoned("c", SOURCE, "/a\x1b", 3, 5, "given_up")
SLOW = SlowConsumer("c", "drop_oldest", 2, "/a", (("/a", SOURCE, 1, 2),))
LEFT = PeerLeft("c", SOURCE, "closed")


@pytest.mark.parametrize("event", [GAP, SLOW])
def test_losses_are_always_told(
    event: GapAbandoned | SlowConsumer, capsys: pytest.CaptureFixture[str]
) -> None:
    _tell(event, is_everything_wanted=False, as_json=False)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("hubbub: ") and told.err[:-1].isprintable()


def test_who_comes_and_goes_is_told_only_when_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _tell(LEFT, is_everything_wanted=False, as_json=False)
    assert capsys.readouterr().err == ""
    _tell(LEFT, is_everything_wanted=True, as_json=False)
    assert capsys.readouterr().err == "hubbub: peer left: lidar#000000, closed, on c\n"


def test_events_are_told_to_programs_with_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    _tell(SLOW, is_everything_wanted=False, as_json=True)
    assert json.loads(capsys.readouterr().err) == {
        "event": "SlowConsumer",
        "channel": "c",
        "policy": "drop_oldest",
        "dropped": 2,
        "subscription": "/a",
        "ranges": [["/a", "lidar#000000", 1, 2]],
        "peer": None,
    }


@pytest.mark.parametrize(
    ("pattern", "is_odd"),
    [("/a/*/...", False), ("/a/b", False), ("/a/**", True), ("/a/b*", True), ("/a/#", True)],
)
def test_pattern_that_is_a_wildcard_elsewhere_is_known(pattern: str, is_odd: bool) -> None:
    assert _is_odd(pattern) == is_odd
