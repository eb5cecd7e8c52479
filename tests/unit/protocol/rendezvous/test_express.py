"""The short way through a manager does what the long one does, frame by frame."""

import pytest

from hubbub.protocol.rendezvous.express import Express
from hubbub.simulation import run

SCENARIOS = [
    *("services_burst", "services_order", "services_loss", "services_slow"),
    *("services_group", "services_group_loss", "services_group_silent"),
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_run_is_the_same_whether_messages_take_the_short_way_or_the_long_one(
    scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = [0]
    sound = Express.take

    def count(self: Express, now: int, data: bytes) -> object:
        result = sound(self, now, data)
        taken[0] += result is not None
        return result

    monkeypatch.setattr(Express, "take", count)
    short = run(scenario, 5)
    monkeypatch.setattr(Express, "take", lambda self, now, data: None)
    long = run(scenario, 5)
    assert short.ok and long.ok
    assert taken[0]
    assert short.trace_hash == long.trace_hash
