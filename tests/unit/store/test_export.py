"""A recording in the formats of others says what it said; a file is whole or not there."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from mcap.reader import make_reader

from hubbub.errors import StoreError
from hubbub.schema import schema_of
from hubbub.store import Store
from hubbub.store.export import Exported, export
from hubbub.store.journal import Run, Topic
from hubbub.store.payloads import Written, infer_schema, write_payload
from hubbub.store.schema import MESSAGES
from tests.unit.store.recording import TOPIC, write_segment
from tests.unit.store.test_reading import START, at, event, make_store


class Rate(msgspec.Struct):
    per_second: float
    where: list[str]


SCHEMA = schema_of(Rate)
RATES = Topic("/plant/rate", "radar", b"\xff" * 12, (1 << 64) - 2, SCHEMA.name, SCHEMA.hash)
PLAIN = [b"21.5", b"\xff\xfe", b'{"on": true}', b'line\n"two",', b"{not json"]
TYPED = [msgspec.msgpack.encode(Rate(1.5, ["a"])), msgspec.msgpack.encode(Rate(2.5, []))]


def make_run(offset: int, topic: Topic, payloads: list[bytes]) -> Run:
    times = range(1000 + offset, 1000 + offset + len(payloads))
    return at(offset, Run(offset, topic, 7, payloads, times, 0, "local", None))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    make_store(tmp_path / "recording")
    runs = [make_run(0, TOPIC, PLAIN), event(0), make_run(5, RATES, TYPED)]
    write_segment(tmp_path / "recording", runs)
    return Store(tmp_path / "recording")


def read_mcap(path: Path) -> Iterator[Any]:
    with path.open("rb") as stream:
        yield from make_reader(stream, validate_crcs=True).iter_messages()


def test_mcap_is_read_back_by_the_library_of_its_makers(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "out.mcap"
    assert export(store, path, "mcap").rows == 7
    found = list(read_mcap(path))
    assert [message.data for _, _, message in found[:5]] == [
        *PLAIN[:2],
        b'{"on":true}',
        *PLAIN[3:],
    ]
    assert [channel.topic for _, channel, _ in found] == ["/plant/temp"] * 5 + ["/plant/rate"] * 2
    encodings = [channel.message_encoding for _, channel, _ in found]
    bytes_ = "application/octet-stream"
    assert encodings == [bytes_, bytes_, "json", bytes_, bytes_, "json", "json"]
    _, channel, message = found[0]
    assert (message.log_time, message.publish_time, message.sequence) == (START, 1000, 7)
    assert channel.metadata["source"] == "lidar" and channel.metadata["source_id"] == "00" * 12
    schema, channel, message = found[5]
    assert (schema.name, schema.encoding) == ("Rate", "jsonschema")
    assert json.loads(schema.data)["properties"]["per_second"] == {"type": "number"}
    assert json.loads(message.data) == {"per_second": 1.5, "where": ["a"]}
    assert channel.metadata["schema_hash"] == f"{SCHEMA.hash:016x}"
    assert channel.metadata["incarnation"] == "fffffffffffffffe"
    with path.open("rb") as stream:
        summary = make_reader(stream).get_summary()
    assert summary is not None and summary.statistics is not None
    assert (summary.statistics.message_count, summary.statistics.channel_count) == (7, 3)


def test_lines_of_json_hold_values_text_or_base64(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    export(store, path, "jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["encoding"], row["payload"]) for row in rows] == [
        ("text", "21.5"),
        ("base64", "//4="),
        ("json", {"on": True}),
        ("text", 'line\n"two",'),
        ("text", "{not json"),
        ("json", {"per_second": 1.5, "where": ["a"]}),
        ("json", {"per_second": 2.5, "where": []}),
    ]
    assert (rows[5]["subject"], rows[5]["schema"], rows[5]["offset"]) == ("/plant/rate", "Rate", 5)


def test_csv_is_read_back(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    export(store, path, "csv")
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["payload"] for row in rows[:4]] == ["21.5", "//4=", '{"on":true}', 'line\n"two",']
    assert rows[6]["payload"] == '{"per_second":2.5,"where":[]}'
    assert (rows[0]["published_ns"], rows[0]["schema"]) == ("1000", "")
    with_titles = {*rows[0]}
    assert {"recorder", "offset", "encoding", "payload"} <= with_titles


def test_text_with_a_zero_byte_is_no_text() -> None:
    assert write_payload(b"a\0b", None) == Written("base64", "YQBi")


def test_parquet_is_one_file_with_all_columns(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    export(store, path, "parquet")
    table = pq.read_table(path, partitioning=None)
    assert table.schema.equals(MESSAGES) and table["payload"].to_pylist() == PLAIN + TYPED


def test_only_what_was_chosen_is_written(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "out.mcap"
    done = export(store, path, "mcap", subjects=("/plant/rate",), start=START, end=START + 10**12)
    assert done == Exported(2, sum(map(len, TYPED)))
    assert {channel.topic for _, channel, _ in read_mcap(path)} == {"/plant/rate"}


def test_nothing_is_a_whole_file_too(store: Store, tmp_path: Path) -> None:
    for to in ("mcap", "csv", "jsonl", "parquet"):
        path = tmp_path / f"out.{to}"
        assert export(store, path, to, subjects=("/nothing",)).rows == 0 and path.exists()
    assert list(read_mcap(tmp_path / "out.mcap")) == []
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 0


def test_other_tables_are_written_as_text_or_parquet(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    export(store, path, "jsonl", table="events")
    (row,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert (row["kind"], row["time_ns"], row["number"]) == ("PeerJoined", START, 0)
    export(store, tmp_path / "out.csv", "csv", table="events")
    export(store, tmp_path / "out.parquet", "parquet", table="events")
    with pytest.raises(StoreError, match="mcap holds messages"):
        export(store, tmp_path / "out.mcap", "mcap", table="events")


def test_text_goes_to_a_stream(store: Store) -> None:
    for to in ("csv", "jsonl"):
        stream = io.BytesIO()
        export(store, stream, to)
        assert stream.getvalue().count(b"/plant/rate") == 2
    with pytest.raises(StoreError, match="needs a file"):
        export(store, io.BytesIO(), "mcap")


@pytest.mark.parametrize("to", ["mcap", "csv", "jsonl", "parquet"])
def test_export_that_fails_leaves_nothing(store: Store, tmp_path: Path, to: str) -> None:
    path = tmp_path / f"out.{to}"
    path.write_bytes(b"before")

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(store, path, to, on_progress=interrupt)
    assert path.read_bytes() == b"before"
    assert sorted(one.name for one in tmp_path.iterdir()) == [f"out.{to}", "recording"]


def test_what_cannot_be_written_is_told(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        export(store, tmp_path / "nowhere" / "out.csv", "csv")
    with pytest.raises(StoreError, match="is no format"):
        export(store, tmp_path / "out.bag", "bag")


@pytest.mark.parametrize(
    ("payload", "schema", "encoding"),
    [
        (b"", None, "text"),
        (b"", "Rate", "text"),
        (b"\xc1", "Rate", "base64"),
        (msgspec.msgpack.encode(None), "Rate", "json"),
        (msgspec.msgpack.encode({(1, 2): 3}), "Rate", "base64"),
        (b"[" * 100_000, None, "text"),
        (b"\x91" * 100_000, "Rate", "base64"),
        (msgspec.msgpack.encode({"a": b"\xff"}), "Rate", "json"),
    ],
)
def test_payload_that_is_not_what_it_seems_is_written_all_the_same(
    payload: bytes, schema: str | None, encoding: str
) -> None:
    assert write_payload(payload, schema).encoding == encoding


def test_schema_is_inferred() -> None:
    value = {"a": 1, "b": [True], "c": None, "d": {"e": "x"}, "f": b"y", "g": []}
    assert infer_schema(value, "T") == {
        "title": "T",
        "type": "object",
        "properties": {
            "a": {"type": "number"},
            "b": {"type": "array", "items": {"type": "boolean"}},
            "c": {},
            "d": {"type": "object", "properties": {"e": {"type": "string"}}},
            "f": {"type": "string", "contentEncoding": "base64"},
            "g": {"type": "array"},
        },
    }
