"""Start Spark: with a Java that is found, quietly, and with settings that suit one machine.

Whatever Java and Spark have to say while they start goes to a log file, because none of it is for
the person at the screen; what goes wrong is one error that names the file.
"""

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hubbub.errors import ConfigurationError, MissingExtra
from hubbub.limits import SPARK_LOG_BYTES_MAX
from hubbub.pipeline.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG4J: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{ISO8601} %p %c{1}: %m%n%ex
"""

# What holds wherever Spark runs. Times are UTC, and Parquet files have timestamps and names that
# other tools understand.
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    # Otherwise every column that a plan is made of asks Java five times where it was written.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A page that rotted is an error, not other values.
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Files are named one by one: to look whether each is there needs no job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
}
_INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_LOOPBACK: Final = "127.0.0.1"
# Half the start-up time; the serial collector needs no threads beside those that work.
_QUICK: Final = ("-XX:+UseSerialGC", "-Xlog:disable", "-Xlog:all=error:stderr")
# Ten times as many calls as usual before the thorough compiler looks at a method: what works on
# rows gets there at once, what plans and starts is not worth it.
_THOROUGH_LATE: Final = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
_JAVA_OPTIONS: Final = (*_QUICK, *_THOROUGH_LATE)

# For a run of many small steps: the thorough compiler of Java would take more of the processors,
# for minutes, than it ever saves. Large steps are half as fast without it.
SMALL_STEPS: Final = ("-XX:TieredStopAtLevel=1",)


def start(
    master: str | None = None,
    *,
    name: str = "hubbub",
    settings: Mapping[str, str] | None = None,
    java_options: tuple[str, ...] = (),
) -> "SparkSession":
    """Start Spark, or return the session that there is.

    `master` is Spark's: `local[2]`, `spark://host:7077`; by default all processors of this machine,
    or whatever `spark-submit` was told. `settings` are Spark's own, and win over ours.

    >>> spark = start("local[2]")  # doctest: +SKIP
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("Spark is not installed: pip install 'hubbub[spark]'") from None
    if (active := SparkSession.getActiveSession()) is not None:
        return active
    if master is None and not _is_submitted():
        master = "local[*]"
    cache = cache_directory()
    chosen: dict[str, Any] = {**_SETTINGS, **_for_master(master), **(settings or {})}
    chosen["spark.driver.extraJavaOptions"] = " ".join(
        [
            *_JAVA_OPTIONS,
            f"-Dlog4j2.configurationFile={_log_settings(cache).as_uri()}",
            *java_options,
            *filter(None, [chosen.get("spark.driver.extraJavaOptions")]),
        ]
    )
    builder = SparkSession.builder.appName(name).config(map=chosen)
    if master is not None:
        builder = builder.master(master)
    logging.getLogger().addFilter(_is_ours)
    log = cache / "spark.log"
    with _environment(master, cache), _stderr_to(log):
        try:
            return builder.getOrCreate()
        except Exception as error:
            raise ConfigurationError(
                f"Spark did not start with master {master!r}: {_first_line(error)}; see {log}"
            ) from error


@contextmanager
def interpreting(spark: "SparkSession", *, is_on: bool = True) -> Iterator[None]:
    """Let Spark interpret its plans for a while, not compile them: few rows are not worth it."""
    if not is_on:
        yield
        return
    before = {name: spark.conf.get(name) or "" for name in _INTERPRETED}
    try:
        for name, value in _INTERPRETED.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def cache_directory() -> Path:
    """Return where a log and what saves start-up time are kept; made if need be."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for directory in (base / "hubbub", Path(tempfile.gettempdir()) / f"hubbub-{os.getuid()}"):
        with suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            if os.access(directory, os.W_OK) and directory.stat().st_uid == os.getuid():
                return directory
    return Path(tempfile.mkdtemp(prefix="hubbub-"))


def _is_ours(record: logging.LogRecord) -> bool:
    """Leave out what the bridge to Java logs: Ctrl-C in a call would be a screen of tracebacks."""
    return "py4j" not in record.pathname


def _is_submitted() -> bool:
    """Tell whether `spark-submit` started us: its Java is running already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _for_master(master: str | None) -> dict[str, str]:
    """Choose what depends on where the work is done."""
    if master is None or not master.startswith("local"):
        return {}
    chosen = {
        "spark.driver.memory": "2g",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "hubbub-warehouse"),
    }
    if not master.startswith("local-cluster"):
        # Elsewhere Spark finds out itself how many pieces are worth it (AQE); on one machine these
        # second thoughts would cost more than they save.
        chosen["spark.sql.adaptive.enabled"] = "false"
        chosen["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 1)
    return chosen


def _log_settings(cache: Path) -> Path:
    path = cache / "log4j2.properties"
    if not path.exists() or path.read_text() != _LOG4J:
        fresh = path.with_name(f".{path.name}-{os.getpid()}")
        fresh.write_text(_LOG4J)
        fresh.replace(path)
    return path


@contextmanager
def _environment(master: str | None, cache: Path) -> Iterator[None]:
    """Let Spark's launcher find Java, and workers the Python that runs here."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if _is_submitted():
        yield
        return
    wanted = {"JAVA_HOME": str(find_java(cache))}
    if master is not None and master.startswith("local"):
        wanted["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", _LOOPBACK)
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Point descriptor 2 at a file for a while; a process that is started meanwhile keeps it."""
    with suppress(OSError):
        if log.stat().st_size > SPARK_LOG_BYTES_MAX:
            log.unlink()
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(file, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
