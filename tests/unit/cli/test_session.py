import logging
from collections.abc import Iterator

import pytest

from hubbub import GapAbandoned, LinkUp, Source, Starved
from hubbub.cli.session import set_up_log, tell_of

LOGGER = logging.getLogger("hubbub.repair")
GAP = GapAbandoned("c", Source("s", bytes(12), 1), "/a", 1, 2, "given_up")


@pytest.fixture(autouse=True)
def _handlers_of_others() -> Iterator[None]:
    before = list(logging.getLogger("hubbub").handlers)
    yield
    logging.getLogger("hubbub").handlers[:] = before


def test_log_that_nobody_asked_for_has_warnings_but_not_the_events_that_commands_tell(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_log(is_wanted=False)
    LOGGER.warning("%s", GAP)
    LOGGER.info("all is well")
    LOGGER.warning("no LAN")
    assert capsys.readouterr().err == "hubbub: no LAN\n"


def test_log_that_was_asked_for_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log(is_wanted=True)
    LOGGER.warning("%s", GAP)
    assert "hubbub.repair gap abandoned" in capsys.readouterr().err


def test_log_cannot_send_escape_codes(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log(is_wanted=False)
    LOGGER.error("peer \x1b[2J\x9b2J")
    assert capsys.readouterr().err == "hubbub: peer \\x1b[2J\\x9b2J\n"


def test_events_of_the_kinds_asked_for_are_told_in_a_line_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell = tell_of(GapAbandoned, Starved)
    for event in (GAP, LinkUp("c", "eth0"), Starved("c", 25)):
        tell(event)
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2].partition(":")[0] for line in told] == [
        "gap abandoned",
        "starved",
    ]
