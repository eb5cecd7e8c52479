"""A segment becomes Parquet files: all that was readable, once, in its hours, whatever happened."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hubbub.limits import DAMAGE_NUMBER, ROW_GROUP_BYTES, SECOND
from hubbub.store import columns, convert
from hubbub.store.convert import DAMAGED, convert_segment, damaged_folder
from hubbub.store.journal import Row, Run, Topic, segments
from hubbub.store.layout import HOUR_NS, data_files, hour_of, parse_name
from hubbub.store.records import SAMPLE, Decoder, Timing, encode_label, encode_run
from hubbub.store.schema import MESSAGES, TABLES
from tests.unit.store.disk import DyingDisk
from tests.unit.store.recording import RECORDER, TOPIC, pieces_of, run, write_segment

TYPED = Topic("/plant/rate", "radar", b"\xff" * 12, (1 << 64) - 2, "Rate", (1 << 64) - 1)
EVENT = Row(4, "events", {"time_ns": 3_000_000, "kind": "PeerJoined", "incarnation": 1 << 63})
COUNTER = Row(5, "counters", {"time_ns": 4_000_000, "name": "frames", "value": 12})
AT_NS = 1_800_000_000 * SECOND


def at(time_ns: int, one: Run) -> Run:
    return one._replace(received_ns=time_ns)


def read(store: Path, table: str) -> list[dict[str, Any]]:
    tables = [pq.read_table(file.path, partitioning=None) for file in data_files(store, table)]
    return [row for one in tables for row in one.to_pylist()]


def content(store: Path) -> dict[str, bytes]:
    return {
        path.relative_to(store).as_posix(): path.read_bytes()
        for path in sorted(store.rglob("*"))
        if path.is_file()
    }


def visible(store: Path) -> dict[str, bytes]:
    return {name: data for name, data in content(store).items() if not name.endswith(".tmp")}


def test_samples_keep_tick_period_and_epoch(tmp_path: Path) -> None:
    runs = [
        run(0),
        run(3, 1)._replace(timing=Timing(AT_NS, 20, AT_NS - 40, -7, 0)),
        run(4, 1)._replace(timing=Timing(AT_NS + 1, 0, AT_NS - 40)),  # Its slot has a sample.
    ]
    convert_segment(tmp_path, write_segment(tmp_path, runs))
    rows = read(tmp_path, "messages")
    assert [row["tick_ns"] for row in rows] == [None, None, None, AT_NS, AT_NS + 1]
    assert [row["period_ns"] for row in rows] == [None, None, None, 20, None]
    assert [row["epoch"] for row in rows[2:]] == [None, AT_NS - 40, AT_NS - 40]
    assert [row["clock_offset_ns"] for row in rows[2:]] == [None, -7, 0]
    assert [row["clock_error_ns"] for row in rows[2:]] == [None, 0, None]
    assert [row["hops"] for row in rows[2:]] == [0, None, None]
    assert [row["payload"] for row in rows] == [one for each in runs for one in each.payloads]


def test_samples_of_older_recordings_know_no_clock() -> None:
    [body] = encode_run(encode_label(TOPIC, "local"), 0, 1, [b"x"], [5], 6, None, Timing(1, 2, 3))
    old = body[:24] + body[40:]
    found = Decoder().decode(SAMPLE, old)
    assert isinstance(found, Run) and found.payloads == [b"x"]
    assert found.timing == Timing(1, 2, 3, 0, -1)


def test_messages_keep_service_epoch_and_hops(tmp_path: Path) -> None:
    served = TOPIC._replace(service="news", epoch=3)
    runs = [run(0, 1), run(1, 1, served), run(2, 1, TOPIC._replace(hops=2))]
    convert_segment(tmp_path, write_segment(tmp_path, runs))
    rows = read(tmp_path, "messages")
    assert [(row["service"], row["epoch"], row["hops"]) for row in rows] == [
        (None, None, 0), ("news", 3, None), (None, None, 2),
    ]  # fmt: skip


def test_messages_come_back_as_they_were(tmp_path: Path) -> None:
    runs = [
        run(0),
        run(3, 2, TYPED)._replace(replayed_ns=77, link="multicast", first=(1 << 63) + 1),
        run(5, 1)._replace(payloads=[b""]),
    ]
    conversion = convert_segment(tmp_path, write_segment(tmp_path, runs, 41))
    rows = read(tmp_path, "messages")
    assert conversion.messages == len(rows) == 6 and conversion.is_whole
    assert [row["offset"] for row in rows] == list(range(6))
    assert [row["payload"] for row in rows] == [one for each in runs for one in each.payloads]
    assert [row["size"] for row in rows] == [64] * 5 + [0]
    assert [row["subject"] for row in rows[2:4]] == ["/plant/temp", "/plant/rate"]
    first, typed = rows[0], rows[3]
    assert first["recorder"] == RECORDER.hex() and first["source_id"] == "00" * 12
    assert (first["published_ns"], first["received_ns"], first["sequence"]) == (1000, 2000, 0)
    assert first["published"].microsecond == 1 and first["received"].microsecond == 2
    assert (first["schema"], first["schema_hash"], first["replayed_ns"]) == (None, None, None)
    assert (typed["schema"], typed["schema_hash"], typed["replayed_ns"]) == ("Rate", -1, 77)
    assert (typed["incarnation"], typed["link"]) == (-2, "multicast")
    assert typed["sequence"] == (1 << 63) + 1 - (1 << 64)
    assert first["tick_ns"] is first["service"] is None


@pytest.mark.parametrize("table", TABLES)
def test_files_have_the_columns_of_the_schema(tmp_path: Path, table: str) -> None:
    announcement = Row(6, "announcements", {"time_ns": 1, "is_present": True, "pid": 1 << 40})
    convert_segment(tmp_path, write_segment(tmp_path, [run(0), EVENT, COUNTER, announcement]))
    (file,) = data_files(tmp_path, table)
    assert pq.read_schema(file.path).equals(TABLES[table])
    metadata = pq.read_metadata(file.path)
    assert {
        metadata.row_group(0).column(place).compression for place in range(metadata.num_columns)
    } == {"ZSTD"}


def test_other_rows_come_back_and_what_fits_no_column_is_null(tmp_path: Path) -> None:
    strange = Row(6, "events", {"time_ns": "soon", "kind": 7, "count": "many", "colour": "red"})
    unknown = Row(7, "colours", {"time_ns": 1})
    convert_segment(tmp_path, write_segment(tmp_path, [EVENT, COUNTER, strange, unknown]))
    event, odd = read(tmp_path, "events")
    assert (event["number"], event["kind"], event["time"].microsecond) == (4, "PeerJoined", 3000)
    assert event["incarnation"] == -(1 << 63)
    assert (odd["kind"], odd["count"], odd["time_ns"], odd["time"]) == ("7", None, None, None)
    (counter,) = read(tmp_path, "counters")
    assert (counter["name"], counter["value"]) == ("frames", 12)


def test_file_is_named_by_segment_and_rows_and_lies_in_its_hour(tmp_path: Path) -> None:
    runs = [at(AT_NS, run(100)), at(AT_NS + HOUR_NS, run(103)), at(AT_NS, run(106))]
    convert_segment(tmp_path, write_segment(tmp_path, runs, 41))
    files = data_files(tmp_path, "messages")
    assert [(file.segment, file.first, file.last) for file in files] == [
        (41, 100, 102),
        (41, 103, 105),
        (41, 106, 108),
    ]
    assert [file.hour for file in files] == [hour_of(run.received_ns) for run in runs]
    name = "messages/hour=2027-01-15-08/000000000041-0000000000000100-0000000000000102.parquet"
    assert files[0].path == tmp_path / name


def test_segment_goes_when_its_files_are_there(tmp_path: Path) -> None:
    convert_segment(tmp_path, write_segment(tmp_path, [run(0)]))
    assert segments(tmp_path) == [] and not damaged_folder(tmp_path).exists()


def test_converting_again_after_a_crash_gives_the_same_files(tmp_path: Path) -> None:
    values = [at(AT_NS, run(0)), at(AT_NS + HOUR_NS, run(3)), EVENT, COUNTER]
    path = write_segment(tmp_path, values)
    segment = path.read_bytes()
    convert_segment(tmp_path, path)
    before = content(tmp_path)
    path.write_bytes(segment)  # As if the crash came before the segment was removed.
    convert_segment(tmp_path, path)
    assert content(tmp_path) == before


def test_crash_at_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    values = [at(AT_NS, run(0)), at(AT_NS + HOUR_NS, run(3)), EVENT, COUNTER]
    reference = tmp_path / "reference"
    convert_segment(reference, write_segment(reference, values))
    step = 0
    for step in count():
        store = tmp_path / str(step)
        path = write_segment(store, values)
        with DyingDisk(step) as disk:
            convert_segment(store, path)
        if disk.is_alive:
            break
        if path.exists():
            convert_segment(store, path)
        assert visible(store) == visible(reference), f"after a crash at step {step}"
        assert path.parent.exists() and segments(store) == []
    assert step > 20


def test_what_a_damaged_segment_still_tells_is_converted_and_the_rest_reported(
    tmp_path: Path,
) -> None:
    pieces = pieces_of([run(0), run(3), run(6), EVENT], 41)
    pieces[2] = pieces[2][:-1] + b"!"
    path = write_segment(tmp_path, [], 41)
    path.write_bytes(b"".join(pieces))
    conversion = convert_segment(tmp_path, path)
    assert not conversion.is_whole and conversion.missing == [(3, 6)]
    assert [row["offset"] for row in read(tmp_path, "messages")] == [0, 1, 2, 6, 7, 8]
    event, damaged, missing = read(tmp_path, "events")
    assert event["kind"] == "PeerJoined"
    assert damaged["kind"] == missing["kind"] == DAMAGED
    assert missing["count"] == 3 and min(damaged["number"], missing["number"]) >= DAMAGE_NUMBER
    start = len(pieces[0] + pieces[1])
    assert json.loads(damaged["detail"]) == {
        "segment": path.name, "damages": 2, "what": "damaged",
        "first_byte": start, "end_byte": start + len(pieces[2]),
    }  # fmt: skip
    assert json.loads(missing["detail"])["first_offset"] == 3
    assert segments(tmp_path) == []
    assert (damaged_folder(tmp_path) / path.name).read_bytes() == b"".join(pieces)


def test_torn_tail_is_reported_and_kept_aside(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [run(0), run(3)], 41, is_closed=False)
    path.write_bytes(path.read_bytes()[:-1])
    assert convert_segment(tmp_path, path).torn_bytes
    assert [row["offset"] for row in read(tmp_path, "messages")] == [0, 1, 2]
    (event,) = read(tmp_path, "events")
    assert json.loads(event["detail"])["what"] == "torn"
    assert (damaged_folder(tmp_path) / path.name).exists()


def test_segment_of_which_nothing_can_be_read_is_reported_and_kept_aside(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [run(0)], 41)
    path.write_bytes(b"rubbish" * 100)
    conversion = convert_segment(tmp_path, path)
    assert conversion.messages == 0 and not conversion.is_whole
    assert len(read(tmp_path, "events")) == 1
    assert (damaged_folder(tmp_path) / path.name).exists()


def test_row_group_is_bounded_in_bytes_and_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "ROW_GROUP_ROWS", 4)
    monkeypatch.setattr(convert, "ROW_GROUP_BYTES", 1000)
    monkeypatch.setattr(columns, "ROW_GROUP_BYTES", 1000)
    runs = [run(0, 3), run(3, 3), run(6, 3), run(9, 7, size=400)]
    convert_segment(tmp_path, write_segment(tmp_path, runs))
    (file,) = data_files(tmp_path, "messages")
    metadata = pq.read_metadata(file.path)
    groups = [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)]
    assert groups == [6, 5, 4, 1]
    assert [row["offset"] for row in read(tmp_path, "messages")] == list(range(16))


def test_unknown_names_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "messages" / "hour=2027-01-15-08"
    folder.mkdir(parents=True)
    for name in ("notes.txt", ".000000000041-0000000000000100.tmp", "_SUCCESS"):
        (folder / name).touch()
    (tmp_path / "messages" / "README").touch()
    assert data_files(tmp_path, "messages") == []
    assert parse_name(tmp_path / "a" / "000000000041-0000000000000100-0000000000000102") is None


def test_time_beyond_all_calendars_has_an_hour() -> None:
    assert hour_of((1 << 64) - 1) == "2554-07-21-23" and hour_of(-5) == "1970-01-01-00"
    assert hour_of(1 << 80) == "9999-12-31-23"


def test_schema_holds_nothing_that_spark_cannot_read() -> None:
    assert not any(pa.types.is_dictionary(field.type) for field in MESSAGES)
    assert ROW_GROUP_BYTES < 1 << 31
