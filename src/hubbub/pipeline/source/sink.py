"""Publishes the rows of a data frame: `df.write.format("hubbub")`, and streams.

Each task opens a node, publishes its rows, waits until every receiver has them, and closes it. A
task that fails is run again from its first row. Its node's id tells for which task it works
(`hubbub.repeats`), so a subscription that stayed passes over what it has had already.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    StringType,
    StructType,
)

import hubbub
from hubbub.errors import Backpressure, ConfigurationError, PayloadError
from hubbub.limits import SINK_TIMEOUT_S
from hubbub.pipeline.source.spool import Spool
from hubbub.repeats import repeatable_id

COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "subject": (StringType,),
    "payload": (BinaryType, StringType),
    "schema": (StringType,),
    "schema_hash": (LongType,),
    "published_ns": (LongType,),
}
OPTIONS: Final = (
    *("domain", "interface", "channel", "links", "peers"),
    *("waitForSubscribers", "rate", "timeout"),
)
# What Spark adds to the options of a stream or of a table.
_SPARKS_OWN: Final = ("checkpointlocation", "path", "queryname")
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_HASH_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class Options:
    """How to publish."""

    node: dict[str, Any]
    subscribers: int = 0
    rate: float = 0.0  # Rows a second and task; 0: as fast as receivers take them.
    timeout_s: float = SINK_TIMEOUT_S


@dataclass
class Published(WriterCommitMessage):
    """What a task has published."""

    rows: int


def take_options(given: Mapping[str, str]) -> Options:
    """Check what was given."""
    options = {name.lower(): value for name, value in given.items()}
    known = [name.lower() for name in OPTIONS]
    unknown = sorted(options.keys() - {*known, *_SPARKS_OWN})
    if unknown:
        raise ConfigurationError(f"no option {', '.join(unknown)}; there are {', '.join(OPTIONS)}")
    node: dict[str, Any] = {
        name: options[name] for name in ("domain", "interface", "peers") if name in options
    }
    if "links" in options:
        node["links"] = [link.strip() for link in options["links"].split(",")]
    if "channel" in options:
        node["channels"] = [_channel(options["channel"])]
    return Options(
        node,
        int(_number("waitForSubscribers", options.get("waitforsubscribers", "0"))),
        _number("rate", options.get("rate", "0")),
        _number("timeout", options.get("timeout", str(SINK_TIMEOUT_S))),
    )


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ConfigurationError(f"{name}={text!r} must be a number, at least 0")
    return value


def _channel(text: str) -> hubbub.Channel:
    group, _, port = text.rpartition(":")
    if not group or not port.isdecimal():
        raise ConfigurationError(f"channel={text!r}: write GROUP:PORT, such as 239.255.72.66:7266")
    return hubbub.Channel(group, int(port))


def check_columns(schema: StructType) -> None:
    """Refuse a frame that cannot be published, before any of it is."""
    kinds = {field.name: field.dataType for field in schema}
    unknown = [name for name in kinds if name not in COLUMNS]
    if unknown or "subject" not in kinds or "payload" not in kinds:
        what = f"column {', '.join(unknown)}" if unknown else f"only {', '.join(kinds) or 'none'}"
        raise ConfigurationError(
            f"{what}: a frame that is published has subject and payload, and may have schema,"
            " schema_hash (of the payload's type) and published_ns; select these"
        )
    for name, kind in kinds.items():
        if not isinstance(kind, COLUMNS[name]):
            wanted = " or ".join(one.typeName() for one in COLUMNS[name])
            raise ConfigurationError(f"column {name} is {kind.simpleString()}: make it {wanted}")


class _Sender:
    """Publishes for one task."""

    def __init__(self, node: hubbub.Node, options: Options) -> None:
        self._node = node
        self._options = options
        self._publishers: dict[tuple[str, str, int], hubbub.Publisher] = {}
        self._began_s = monotonic()
        self.rows = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Publish rows in their order."""
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        nothing = [None] * batch.num_rows
        for subject, payload, schema, schema_hash, time_ns in zip(
            *(columns.get(name, nothing) for name in COLUMNS), strict=True
        ):
            if subject is None or payload is None:
                raise PayloadError(
                    f"row {self.rows} of the task: subject and payload may not be null"
                )
            publisher = self._publisher(subject, schema or "", schema_hash or 0)
            data = payload.encode() if isinstance(payload, str) else payload
            publisher.publish(data, time_ns=time_ns)
            self.rows += 1
            self._pace()

    def _publisher(self, subject: str, schema: str, schema_hash: int) -> hubbub.Publisher:
        key = (subject, schema, schema_hash)
        publisher = self._publishers.get(key)
        if publisher is None:
            kind = hubbub.Schema(schema, schema_hash % (1 << _HASH_BITS)) if schema else None
            publisher = self._node.publisher(subject, type=kind, on_slow="block")
            self._publishers[key] = publisher
            wanted, timeout_s = self._options.subscribers, self._options.timeout_s
            if wanted and not publisher.wait_for_subscribers(wanted, timeout_s):
                raise Backpressure(
                    f"{subject} has {publisher.receivers} subscribers after {timeout_s:g} s, not"
                    f" the {wanted} of waitForSubscribers"
                )
        return publisher

    def _pace(self) -> None:
        if self._options.rate:
            ahead_s = self.rows / self._options.rate - (monotonic() - self._began_s)
            if ahead_s > 0:
                sleep(ahead_s)

    def finish(self) -> None:
        """Wait until every receiver has everything."""
        timeout_s = self._options.timeout_s
        if not self._node.flush(timeout_s):
            raise Backpressure(
                f"not all receivers had the {self.rows} rows of this task within {timeout_s:g} s"
            )


def publish(batches: Iterable[pa.RecordBatch], options: Options, job: str) -> Published:
    """Publish the rows of a task, in a worker."""
    context = TaskContext.get()
    assert context is not None, "Spark runs this"
    with closing(Spool(batches)) as spool:
        if not spool.rows:
            return Published(0)
        place = f"{job}-{context.partitionId()}"
        node_id = repeatable_id(f"{place}-{spool.fingerprint}")
        with hubbub.open(f"spark-{place}", node_id=node_id, **options.node) as node:
            sender = _Sender(node, options)
            for batch in spool.batches():
                sender.send(batch)
            sender.finish()
    return Published(sender.rows)


class BatchWriter(DataSourceArrowWriter):
    """Publishes a frame once; who writes it twice publishes it twice."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        check_columns(schema)
        self._options = take_options(given)
        self._job = os.urandom(8).hex()  # The same for all tasks, and for those that are run again.

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish the rows of a task."""
        return publish(iterator, self._options, self._job)


class StreamWriter(DataSourceStreamArrowWriter):
    """Publishes a stream; a batch that is run again, also by a query started anew, is the same."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        check_columns(schema)
        self._options = take_options(given)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        """Publish the rows of a task."""
        context = TaskContext.get()
        assert context is not None, "Spark runs this"
        names = [context.getLocalProperty(name) for name in (_QUERY, _BATCH)]
        return publish(iterator, self._options, "-".join(str(name) for name in names))
