"""`hubbub pipeline run --live --alerts` beside a recorder: a command that is told to end by Ctrl-C.

It starts a Spark of its own, half a minute on an idle machine, so it runs in `make soak` alone.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import hubbub
from hubbub.pipeline import tables
from hubbub.pipeline.versions import Versions
from tests.integration.bus import Place, fresh_place, wait_until
from tests.spark.soak import only_in_soak

COUNT, QUEUE = 500, 10


def command(place: Place, store: Path, out: Path) -> "subprocess.Popen[str]":
    """Start the command on a bus of its own."""
    bus = {
        "HUBBUB_DOMAIN": place.domain,
        "HUBBUB_INTERFACE": "127.0.0.1",
        "HUBBUB_CHANNELS": f"{place.group}:{place.port}",
    }
    arguments = ["--live", "--alerts", "--rule", "slow=3600", "--window", "1s", "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "hubbub", "pipeline", "run", store, "--out", out, *arguments],
        env={**os.environ, **bus}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def messages_in(out: Path) -> int:
    """Count the messages in the tables; 0: there are none yet."""
    if Versions(out).current is None:
        return 0
    return sum(tables.read(out, "topic_health")["messages"].to_pylist())


@only_in_soak
def test_slow_consumer_is_told_as_an_alert_and_ctrl_c_keeps_the_tables(tmp_path: Path) -> None:
    place, store, out = fresh_place(), tmp_path / "store", tmp_path / "tables"
    with (
        place.open("recorder") as node,
        hubbub.Recorder(node, "/plant/...", store) as recorder,
        place.open("listener") as listener,
        command(place, store, out) as process,
    ):
        alerts = listener.subscribe("/hubbub/alerts/slow", history=True)
        wait_until(lambda: Versions(out).current is not None, timeout_s=300)
        with place.open("slow") as slow:
            subscription = slow.subscribe("/plant/...", queue=QUEUE)
            publisher = node.publisher("/plant/temp")
            assert publisher.wait_for_subscribers(1, 30)
            for _ in range(COUNT):
                publisher.publish(b"21.5")
            wait_until(lambda: subscription.dropped == COUNT - QUEUE)
        wait_until(lambda: recorder.acknowledged == COUNT)
        message = alerts.receive(120)
        assert message is not None
        raised = json.loads(message.payload)
        assert (raised["state"], raised["about"]) == ("raised", slow.id.hex())
        assert raised["text"] == "slow is a slow consumer"
        wait_until(lambda: messages_in(out) == COUNT, timeout_s=120)
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        told = json.loads(said)
        assert told["all_runs"]["messages"] == told["tables"]["messages"] == COUNT
    [dropped] = [
        json.loads(row["detail"])["dropped"]
        for row in tables.read(out, "node_timeline").to_pylist()
        if row["kind"] == "ConsumerDropped"
    ]
    assert dropped == COUNT - QUEUE
