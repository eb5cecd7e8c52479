"""A recording as MCAP, for Foxglove and others.

A channel is a subject at one incarnation of a source, and one way to encode: messages that are
known to hold something are JSON, with a schema that is inferred from the first of them, all others
are bytes as they were published. `log_time` is when a message was received, `publish_time` when it
was published; `sequence` has 32 bits there.
"""

from json import dumps
from typing import IO, Any, Final

import pyarrow as pa
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter

from hubbub.store.payloads import JSON, infer_schema, write_payload

_BYTES: Final = "application/octet-stream"
_NO_SCHEMA: Final = 0
_U32: Final = (1 << 32) - 1
_U64: Final = (1 << 64) - 1


class McapOutput:
    """Writes messages; a file needs `close()` for its end."""

    def __init__(self, stream: IO[bytes], recorder: str) -> None:
        self._writer = McapWriter(stream, compression=CompressionType.ZSTD)
        self._writer.start(profile="", library="hubbub")
        self._writer.add_metadata("hubbub", {"recorder": recorder})
        self._channels: dict[tuple[Any, ...], int] = {}
        self._schemas: dict[tuple[str, int], int] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the messages of a batch."""
        for row in batch.to_pylist():
            self._write_one(row)

    def _write_one(self, row: dict[str, Any]) -> None:
        written = write_payload(row["payload"], row["schema"])
        is_json = written.encoding == JSON
        key = (row["subject"], row["source_id"], row["incarnation"], row["schema_hash"], is_json)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = self._open_channel(row, written.value, is_json)
        self._writer.add_message(
            channel_id=channel,
            log_time=row["received_ns"] & _U64,
            publish_time=row["published_ns"] & _U64,
            sequence=row["sequence"] & _U32,
            data=written.text.encode() if is_json else row["payload"],
        )

    def _open_channel(self, row: dict[str, Any], value: Any, is_json: bool) -> int:
        metadata = {
            "source": row["source_name"],
            "source_id": row["source_id"],
            "incarnation": f"{row['incarnation'] & _U64:016x}",
        }
        if row["replayed_ns"] is not None:
            metadata["replayed_ns"] = str(row["replayed_ns"])
        if row["schema"] is not None:
            metadata["schema"] = row["schema"]
            metadata["schema_hash"] = f"{row['schema_hash'] & _U64:016x}"
        channel: int = self._writer.register_channel(
            topic=row["subject"],
            message_encoding="json" if is_json else _BYTES,
            schema_id=self._schema_of(row, value) if is_json else _NO_SCHEMA,
            metadata=metadata,
        )
        return channel

    def _schema_of(self, row: dict[str, Any], value: Any) -> int:
        """Register what a typed message looks like; one without a type has no schema."""
        if row["schema"] is None:
            return _NO_SCHEMA
        key = (row["schema"], row["schema_hash"])
        if key not in self._schemas:
            data = dumps(infer_schema(value, row["schema"])).encode()
            self._schemas[key] = self._writer.register_schema(row["schema"], "jsonschema", data)
        return self._schemas[key]

    def close(self) -> None:
        """Write the index and the end."""
        self._writer.finish()  # type: ignore[no-untyped-call]
