"""The benchmark's own processes, with Hubbub alone and in no time: who measures must be right."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import pair, recorder
from tests.integration.namespace import why_not

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 100


def test_fan_out_counts_what_each_of_its_processes_got() -> None:
    outcome = pair.measure("hubbub", "fan-out", 64, 0.05, subscribers=3)
    phase = outcome["fan-out"]
    assert len(outcome["cpu_seconds"]) == 4
    assert len(set(phase["received_each"])) == 1 and len(phase["received_each"]) == 3
    assert phase["sent"] == phase["received"] == 3 * phase["received_each"][0] > 0
    assert phase["seconds"] >= 0.05


def test_pair_has_throughput_and_round_trips() -> None:
    outcome = pair.measure("hubbub", "throughput", 64, 0.05)
    for measure in ("unread", "read"):
        assert outcome[measure]["sent"] == outcome[measure]["received"] > 0
    outcome = pair.measure("hubbub", "latency", 64, 0.05)
    assert outcome["round_trips"] > 0 and outcome["lost"] == 0
    assert 0 < outcome["p50_us"] <= outcome["p99_us"]


def test_process_that_cannot_start_fails_the_fan_out() -> None:
    with pytest.raises(pair.PairFailed, match="KeyError"):
        pair.measure("pigeon", "fan-out", 64, 0.05, subscribers=2)


@pytest.mark.netns
def test_hosts_of_the_benchmark_reach_each_other_by_multicast(tmp_path: Path) -> None:
    refusal = why_not() if os.geteuid() == 0 else "only root may join namespaces by veth"
    if refusal:
        pytest.skip(refusal)
    results = tmp_path / "veth.json"
    options = ["--only", "hubbub-veth", "--sizes", "64K", "--rounds", "1", "--seconds", "0.1"]
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.veth", *options, "--json", str(results)],
        cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "| hubbub-veth |" in ended.stdout and " MB/s " in ended.stdout, ended.stdout
    assert "No delivery was lost in any round." in ended.stdout
    [cell] = json.loads(results.read_text())["summary"]
    assert cell["received"] == cell["sent"] > 0


@pytest.mark.parametrize(("name", "size"), [("hubbub", 64), ("hubbub", 1 << 20), ("mcap", 64)])
def test_recorders_keep_everything_in_a_small_run(name: str, size: int, tmp_path: Path) -> None:
    told = recorder.measure(name, size, 200, tmp_path)
    assert told["lost"] == 0
    assert told["rate"] > 0
    assert list(tmp_path.iterdir()) == []
