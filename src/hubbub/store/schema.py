"""The columns of a recording. One definition: Parquet files, Spark and Arrow batches all follow it.

Every row says who recorded it and where in that recording it stands: (recorder, offset) for a
message, (recorder, number) for anything else. Times are nanoseconds since 1970 and, beside them for
people and for Spark, timestamps in microseconds. All columns may be null: Spark asks for that.
"""

from typing import Final

import pyarrow as pa

TIMESTAMP: Final = pa.timestamp("us", "UTC")

MESSAGES: Final = pa.schema(
    [
        ("recorder", pa.string()),  # Hex of its id; new with every store.
        ("offset", pa.int64()),  # Counts the messages of the recording, from 0, without a hole.
        ("subject", pa.string()),
        ("source_name", pa.string()),
        ("source_id", pa.string()),  # Hex of 12 bytes.
        ("incarnation", pa.int64()),
        ("sequence", pa.int64()),  # Of this subject at this source.
        ("published_ns", pa.int64()),  # By the publisher's clock.
        ("received_ns", pa.int64()),  # By the recorder's.
        ("published", TIMESTAMP),
        ("received", TIMESTAMP),
        ("link", pa.string()),
        ("schema", pa.string()),  # Name of the type; null: plain bytes.
        ("schema_hash", pa.int64()),  # The hash's 64 bits, as a signed number.
        ("size", pa.int32()),
        ("payload", pa.binary()),
        ("replayed_ns", pa.int64()),  # When a recording was played again; null: the first time.
        ("tick_ns", pa.int64()),  # Of a sample: the nominal time it was made for.
        ("period_ns", pa.int64()),  # The shortest its producer serves; null: its slot has one.
        ("service", pa.string()),  # That it came by; null: by none.
        ("epoch", pa.int64()),  # Of a service; of a sample, the tick that slots count from.
        ("hops", pa.int32()),  # Gateways that it crossed; null: nobody counted them.
        ("clock_offset_ns", pa.int64()),  # Of a sample: the clock of its ticks minus `received`'s.
        ("clock_error_ns", pa.int64()),  # How wrong that clock may be; null: not known.
    ]
)

# What every row has that is not a message, and how a node is named in it.
_ROW: Final = (
    ("recorder", pa.string()),
    ("number", pa.int64()),
    ("time_ns", pa.int64()),
    ("time", TIMESTAMP),
)
_NODE: Final = (
    ("node_name", pa.string()),
    ("node_id", pa.string()),
    ("incarnation", pa.int64()),
)

# What the bus reported: joins, leaves, gaps, slow consumers (repairs are counters); and what the
# recorder itself could not keep (`RecorderLost`): its losses are never taken for the bus's.
EVENTS: Final = pa.schema(
    [
        *_ROW,
        ("kind", pa.string()),  # Name of the event's class.
        *_NODE,  # Whom it is about.
        ("subject", pa.string()),
        ("first_sequence", pa.int64()),
        ("last_sequence", pa.int64()),
        ("count", pa.int64()),
        ("detail", pa.string()),  # The whole event as JSON.
    ]
)

# Who publishes and wants what, each time that it changes.
ANNOUNCEMENTS: Final = pa.schema(
    [
        *_ROW,
        *_NODE,
        ("host", pa.string()),
        ("pid", pa.int32()),
        ("link", pa.string()),
        ("role", pa.string()),  # publisher or subscriber
        ("subject", pa.string()),  # Of a subscriber: its pattern.
        ("schema", pa.string()),
        ("is_present", pa.bool_()),  # False: it has ended.
    ]
)

# Counters of the recorder's node, each second: of itself (no node named), and of each peer.
COUNTERS: Final = pa.schema(
    [
        *_ROW,
        *_NODE,
        ("link", pa.string()),
        ("name", pa.string()),
        ("value", pa.int64()),  # Since the recorder began: it only grows.
        ("since_ns", pa.int64()),  # When that was; null: recorded before this column was there.
    ]
)

TABLES: Final = {
    "messages": MESSAGES,
    "events": EVENTS,
    "announcements": ANNOUNCEMENTS,
    "counters": COUNTERS,
}
