"""The same jobs on real clusters: processes of their own for a master, two workers and executors.

Each takes half a minute on an idle machine, so they run in `make soak` alone.
"""

import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from hubbub.limits import SMALL_STEP_ROWS
from hubbub.pipeline import tables
from hubbub.pipeline.java import find_java
from hubbub.pipeline.session import cache_directory
from hubbub.store.identity import Identity, encode_identity, identity_path
from tests.integration.bus import IS_SOAK, fresh_place, payloads, take, wait_until
from tests.integration.link_probe import free_port
from tests.spark.recording import Recording as SparkRecording
from tests.spark.rows import event, message
from tests.unit.pipeline.recording import RECORDER, START_NS, Recording

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not IS_SOAK, reason="half a minute each: HUBBUB_SOAK=1 runs them"),
    pytest.mark.timeout(3600),
]

LOCAL_CLUSTER = "local-cluster[2,1,1024]"
HOME = Path(pyspark.__file__).parent
DEADLINE_S = 240.0  # Of what takes ten seconds on an idle machine.
FILES, FILE_ROWS = 8, 30_000
SUBJECTS = ("/a", "/b", "/c", "/d")
SENT = "data sent to Python workers"


def spark_class(*arguments: str) -> list[str]:
    return [str(HOME / "bin" / "spark-class"), *arguments]


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a master and two workers from the package that pip installs; return its address."""
    folder = tmp_path_factory.mktemp("cluster")
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "JAVA_HOME": str(find_java(cache_directory())),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    commands = [
        spark_class(
            "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1",
            "--port", str(port), "--webui-port", "0",
        ),
        *(
            spark_class(
                "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1",
                "--memory", "1g", "--webui-port", "0", "-d", str(folder / f"work-{n}"), master,
            )
            for n in range(2)
        ),
    ]  # fmt: skip
    log = folder / "log"
    with log.open("wb") as output:
        processes = [
            subprocess.Popen(command, env=environment, stdout=output, stderr=output)
            for command in commands
        ]
        try:
            end_s = time.monotonic() + DEADLINE_S
            while log.read_text().count("Successfully registered with master") < 2:
                assert time.monotonic() < end_s, log.read_text()
                time.sleep(0.2)
            yield master
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)


@pytest.fixture(params=[LOCAL_CLUSTER, "standalone"])
def master(request: pytest.FixtureRequest) -> str:
    if request.param == LOCAL_CLUSTER:
        return LOCAL_CLUSTER
    address: str = request.getfixturevalue("standalone")
    return address


def hubbub(
    *arguments: str, cwd: Path, settings: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of Hubbub's, as a person would, perhaps with settings of Spark's own."""
    environment = {**os.environ} | ({"SPARK_CONF_DIR": str(settings)} if settings else {})
    return subprocess.run(
        [sys.executable, "-m", "hubbub", *arguments], env=environment,
        cwd=cwd, capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip


def test_sweep_on_a_cluster(master: str, tmp_path: Path) -> None:
    done = hubbub(
        "simulate", "--spark", "--master", master, "--scenario", "tail_loss", "--seeds", "0:24",
        "--json", cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    summary = json.loads(done.stdout)
    assert (summary["runs"], summary["failed"], summary["faults"]) == (24, 0, [])
    assert len(list((tmp_path / "traces" / "results").rglob("*.parquet"))) == 3


READ = """
import sys
from hubbub.pipeline.session import start
spark = start(sys.argv[1])
frame = spark.read.format("hubbub").option("maxRowsPerPartition", "5").load(sys.argv[2])
hosts = frame.mapInArrow(lambda batches: batches, frame.schema).selectExpr("offset", "payload")
print(frame.rdd.getNumPartitions(), frame.count(), hosts.selectExpr("sum(offset)").first()[0])
query = (spark.readStream.format("hubbub")
    .options(startingOffsets="earliest", maxRowsPerTrigger="9")
    .load(sys.argv[2]).selectExpr("offset").writeStream.format("parquet")
    .option("checkpointLocation", sys.argv[3] + "/checkpoint").option("path", sys.argv[3] + "/out")
    .trigger(availableNow=True).start())
query.awaitTermination()
print(spark.read.parquet(sys.argv[3] + "/out").selectExpr("count(*)", "sum(offset)").first()[:])
spark.stop()
"""


def test_recording_is_read_on_a_cluster(master: str, tmp_path: Path) -> None:
    recording = Recording(tmp_path / "store")
    for n in range(6):
        recording.add("/a", *(b"%d" % i for i in range(5)))
        if n in (1, 3):
            recording.roll()
    recording.convert()
    done = subprocess.run(
        [sys.executable, "-c", READ, master, str(recording.path), str(tmp_path)],
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["6 30 435", "(30, 435)"]


def submit(master: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of Hubbub's by `spark-submit`: it starts Java itself, and tells the master."""
    script = cwd / "job.py"
    script.write_text("from hubbub.cli.main import main\nmain()\n")
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "JAVA_HOME": str(find_java(cache_directory())),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return subprocess.run(
        [str(HOME / "bin" / "spark-submit"), "--master", master, str(script), *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip


def test_spark_submit_runs_a_sweep(standalone: str, tmp_path: Path) -> None:
    sweep = ("simulate", "--spark", "--scenario", "tail_loss", "--seeds", "0:8")
    done = submit(standalone, *sweep, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"8 runs of seeds 0:8: all green", done.stdout)
    assert "nothing missing, nothing twice, in order" in done.stdout


def test_spark_submit_makes_tables(standalone: str, large: Path, tmp_path: Path) -> None:
    done = submit(
        standalone, "pipeline", "run", str(large / "store"), "--out", "tables", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert_tables_as_in(large, tmp_path)


def large_recording(store: Path) -> None:
    """Write so many rows that no step is small: with losses, duplicates and bad ones."""
    draw = random.Random(3)
    rows = [
        message(n, n // len(SUBJECTS) + 1, subject=SUBJECTS[n % len(SUBJECTS)])
        for n in range(FILES * FILE_ROWS)
    ]
    rows = [row for row in rows if draw.random() > 0.001]
    assert len(rows) > SMALL_STEP_ROWS
    twice = [row | {"recorder": "two", "offset": row["offset"] + len(rows) * 2} for row in rows]
    for bad in draw.sample(rows, 20):
        bad["sequence"] = 0
    recording = SparkRecording(store)
    identity_path(store).write_bytes(encode_identity(Identity(RECORDER, START_NS)))
    for first in range(0, len(rows), FILE_ROWS):
        recording.add(rows[first : first + FILE_ROWS])
    recording.add(draw.sample(twice, 2000))
    told = [event(n, "GapAbandoned", first_sequence=n, last_sequence=n) for n in range(500)]
    recording.add(told, "events")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a large recording, and the tables that Spark makes of it in one Java."""
    folder = tmp_path_factory.mktemp("large")
    large_recording(folder / "store")
    made = hubbub("pipeline", "run", "store", "--out", "tables", cwd=folder)
    assert made.returncode == 0, made.stderr
    return folder


def assert_tables_as_in(large: Path, folder: Path) -> None:
    """Compare all tables with those that were made in one Java, row by row."""
    for name, shape in tables.SHAPES.items():
        expected, made = (
            tables.read(one / "tables", name).sort_by([(key, "ascending") for key in shape.keys])
            for one in (large, folder)
        )
        assert made.equals(expected), name


def write_settings(folder: Path) -> Path:
    """Let Spark wait for both workers, and write down who did what; return where it says so."""
    (folder / "events").mkdir(parents=True)
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{DEADLINE_S:.0f}s",
    }
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    return folder


def tasks_with_workers(settings: Path) -> list[Counter[str]]:
    """Count, for each stage in which workers of Python had something to do, who did its tasks."""
    stages: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for log in sorted((settings / "events").rglob("events_*")):
        for told in map(json.loads, log.read_text().splitlines()):
            if told["Event"] != "SparkListenerTaskEnd":
                continue
            task = told["Task Info"]
            sent = [one for one in task["Accumulables"] if one.get("Name") == SENT]
            if told["Task End Reason"]["Reason"] == "Success" and sent:
                stages[told["Stage ID"]][task["Executor ID"]] += 1
    return list(stages.values())


def test_both_workers_digest_and_the_tables_are_those_of_one_machine(
    master: str, large: Path, tmp_path: Path
) -> None:
    settings = write_settings(tmp_path / "settings")
    arguments = ("pipeline", "run", str(large / "store"), "--out", "tables", "--master", master)
    made = hubbub(*arguments, cwd=tmp_path, settings=settings)
    assert (made.returncode, made.stderr) == (0, "")
    digested = tasks_with_workers(settings)
    assert digested[0].total() == 8  # Of files: four tasks for each processor.
    assert all(sorted(count) == ["0", "1"] for count in digested), digested
    assert_tables_as_in(large, tmp_path)
    made_of = {name: tables.read(tmp_path / "tables", name).num_rows for name in tables.SHAPES}
    assert made_of["messages"] > SMALL_STEP_ROWS
    assert (made_of["quarantine"], made_of["late"]) == (20, 0)
    assert made_of["gaps"] > 100
    assert sum(tables.read(tmp_path / "tables", "topic_health")["duplicates"].to_pylist()) > 1900


def test_a_recording_is_checked_on_a_cluster(master: str, tmp_path: Path) -> None:
    """The command of the guide, word for word but for the master."""
    recording = Recording(tmp_path / "store")
    for _ in range(4):
        recording.add("/a", *(b"%d" % i for i in range(50)))
        recording.roll()
    recording.close()
    recording.convert(9)
    checked = hubbub("pipeline", "check", "store", "--master", master, cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout == "store: nothing missing, nothing twice, in order\n"


WRITE = """
import json, sys
from hubbub.pipeline.session import start
spark = start("local[1,4]")  # A task may fail three times.
rows = [("/a", str(n)) for n in range(20)] + [("/b", "last")]
frame = spark.createDataFrame(rows, "subject string, payload string").coalesce(1)
frame.write.format("hubbub").options(**json.loads(sys.argv[1])).mode("append").save()
spark.stop()
"""


def test_task_that_failed_half_way_publishes_again_and_nobody_notices(tmp_path: Path) -> None:
    """Nobody wants the last row until the task has failed for that; the others were published."""
    place = fresh_place()
    options = {
        "domain": place.domain, "interface": "127.0.0.1",
        "channel": f"{place.group}:{place.port}", "links": "local,multicast",
        "waitForSubscribers": "1", "timeout": "3",
    }  # fmt: skip
    with place.open("listener", links=["local", "multicast"]) as node:
        first = node.subscribe("/a", queue=1000)
        writer = subprocess.Popen([sys.executable, "-c", WRITE, json.dumps(options)])
        wait_until(lambda: first.pending == 20, DEADLINE_S)
        wait_until(lambda: not first.is_connected, DEADLINE_S)  # The task has failed.
        last = node.subscribe("/b")
        assert writer.wait(DEADLINE_S) == 0
        assert payloads(take(first, 20)) == [b"%d" % n for n in range(20)]
        assert payloads(take(last, 1)) == [b"last"]
        assert first.receive(0) is None
        assert first.statistics().repeats == 20
