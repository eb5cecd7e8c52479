"""An alert reaches who listens, also who comes later; once when it begins, once when it ends."""

import json
from pathlib import Path

from hubbub.cli.pipeline import _publish_to
from hubbub.pipeline.alerts import SUBJECT, Alerts, Condition, LiveTables
from tests.integration.bus import fresh_place, take


def test_alert_is_published_once_when_it_begins_and_once_when_it_ends(tmp_path: Path) -> None:
    holds = True

    def rule(_: LiveTables, value: float) -> list[Condition]:
        return [Condition("/a", f"more than {value:g}", {"lost": 3})] if holds else []

    place = fresh_place()
    with place.open("pipeline") as node, place.open("listener") as listener:
        first = listener.subscribe(f"{SUBJECT}/...")
        alerts = Alerts(tmp_path, {"mine": (rule, 2.0)}, _publish_to(node))
        alerts.look()
        alerts.look()
        late = listener.subscribe(f"{SUBJECT}/mine", history=True)
        raised = json.loads(take(late, 1)[0].payload)
        assert raised.pop("time_ns") > 0
        assert raised == {
            "rule": "mine", "state": "raised", "about": "/a", "text": "more than 2",
            "facts": {"lost": 3},
        }  # fmt: skip
        holds = False
        alerts.look()
        alerts.look()
        messages = take(late, 1)
        assert [json.loads(one.payload)["state"] for one in messages] == ["cleared"]
        assert alerts.told == 2
        assert late.receive(0) is None
        first.close()
