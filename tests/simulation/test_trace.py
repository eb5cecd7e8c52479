"""A trace keeps what happened in a run, and changes nothing of it."""

import pytest

from hubbub.simulation import Trace, run
from hubbub.simulation.bugs import planted


@pytest.mark.parametrize("scenario", ["random_loss", "restart", "history"])
def test_trace_holds_every_delivery_and_changes_no_run(scenario: str) -> None:
    trace = Trace(f"{scenario}-1")
    result = run(scenario, 1, trace)
    assert result == run(scenario, 1)
    kept = sum(len(got.delivery.payloads) for got in trace.got)
    assert kept == result.counts["delivered"] > 0
    assert trace.heard
    assert all(one.recorder.startswith(f"{scenario}-1-n") for one in (*trace.got, *trace.heard))


def test_trace_tells_who_was_owed_what() -> None:
    trace = Trace("random_loss-1")
    run("random_loss", 1, trace)
    got: dict[tuple[str, str, str], set[int]] = {}
    for recorder, _, delivery in trace.got:
        key = (recorder, delivery.topic.source.id.hex(), delivery.topic.subject)
        end = delivery.first + len(delivery.payloads)
        got.setdefault(key, set()).update(range(delivery.first, end))
    assert trace.owed
    for one in trace.owed:
        key = (one.recorder, one.source_id, one.subject)
        assert got[key] == set(range(one.first, one.last + 1))


def test_trace_holds_what_broke_a_promise() -> None:
    """The delivery that the ledger refuses is there."""
    with planted("order_ignored"):
        for seed in range(25):
            trace = Trace("t")
            result = run("random_loss", seed, trace)
            if not result.ok and "again or late" in result.failure:
                break
        else:
            pytest.fail("no seed showed the bug")
    kept = sum(len(got.delivery.payloads) for got in trace.got)
    assert kept > result.counts.get("delivered", 0)
