"""The clean messages: each once, in the order of the recording, without raw payloads."""

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf

from hubbub.pipeline.tables import SHAPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_value(rows: "DataFrame", *, has_typed: bool) -> "DataFrame":
    """Add typed payloads as JSON; without any, no row need leave the Java process."""
    if not has_typed:
        return rows.withColumn("value", F.lit(None).cast("string"))
    typed = F.when(F.col("schema").isNotNull(), F.col("payload"))
    return rows.withColumn("value", _decoded(typed))


def messages(rows: "DataFrame") -> "DataFrame":
    """Keep the columns of the table."""
    return rows.select(*SHAPES["messages"].columns.names)


def _decoded(payload: Column) -> Column:
    """Decode MessagePack, which Spark cannot; what is no MessagePack stays null."""
    # Typed as if it took the kind of function only by number, which Spark warns of.
    decode: Any = arrow_udf
    column: Column = decode(_all_as_json, "string")(payload)
    return column


def _all_as_json(payloads: pa.Array) -> pa.Array:
    texts = [None if one is None else _json_of(one) for one in payloads.to_pylist()]
    return pa.array(texts, pa.string())


def _json_of(payload: bytes) -> str | None:
    try:
        return msgspec.json.encode(msgspec.msgpack.decode(payload)).decode()
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return None
