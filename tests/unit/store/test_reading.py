"""A store is read in order and once: files, large and small, and what is still in the journal."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import hubbub.store
from hubbub.errors import StoreError, SubjectError
from hubbub.limits import SECOND
from hubbub.store import Store, reading
from hubbub.store.convert import convert_segment
from hubbub.store.identity import Identity, encode_identity
from hubbub.store.journal import Row, Run, Topic, open_segment, segment_path
from hubbub.store.layout import HOUR_NS, data_files
from hubbub.store.schema import MESSAGES, TABLES
from tests.unit.store.recording import RECORDER, TOPIC, run, write_segment
from tests.unit.store.test_compact import run_compaction

START = 500_000 * HOUR_NS
RATE = Topic("/plant/rate", "radar", b"\xff" * 12, 9, "Rate", 5)


def make_store(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    (path / "store.json").write_bytes(encode_identity(Identity(RECORDER.hex(), 1)))
    return path


def at(second: float, one: Run) -> Run:
    return one._replace(received_ns=START + int(second * SECOND))


def event(number: int, second: float = 0) -> Row:
    time_ns = START + int(second * SECOND)
    return Row(number, "events", {"time_ns": time_ns, "kind": "PeerJoined", "subject": "/a"})


def values(number: int) -> list[Run | Row]:
    """Return what segment `number` holds: six messages of two topics in a second, and an event."""
    first = 6 * number
    return [
        at(number, run(first)),
        event(number, number),
        at(number + 0.5, run(first + 3, topic=RATE)),
    ]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store that has everything: a large file, small ones, closed and open segments."""
    make_store(tmp_path)
    for number in range(3):
        convert_segment(tmp_path, write_segment(tmp_path, values(number), number))
    run_compaction(tmp_path, START + 3 * HOUR_NS)
    convert_segment(tmp_path, write_segment(tmp_path, values(3), 3))
    write_segment(tmp_path, values(4), 4)
    write_segment(tmp_path, values(5), 5, is_closed=False, zeros=4096)
    return tmp_path


def column(batches: Iterator[Any], name: str = "offset") -> list[Any]:
    return [value for batch in batches for value in batch[name].to_pylist()]


def test_everything_is_read_once_and_in_order(store: Path) -> None:
    assert column(Store(store).messages()) == list(range(36))
    assert column(Store(store).rows("events"), "number") == list(range(6))


def test_batches_have_the_columns_of_the_schema(store: Path) -> None:
    assert {batch.schema for batch in Store(store).messages()} == {MESSAGES}
    assert {batch.schema for batch in Store(store).rows("events")} == {TABLES["events"]}
    narrow = next(Store(store).messages(columns=["size", "payload"]))
    assert narrow.schema.names == ["size", "payload"]


def test_subjects_choose(store: Path) -> None:
    batches = list(Store(store).messages("/plant/rate"))
    assert {text for batch in batches for text in batch["subject"].to_pylist()} == {"/plant/rate"}
    assert sum(batch.num_rows for batch in batches) == 18
    assert len(column(Store(store).messages(["/plant/*", "/nothing"]))) == 36
    assert column(Store(store).messages("/nothing/...")) == []
    with pytest.raises(SubjectError):
        list(Store(store).messages("nonsense"))


def test_times_choose(store: Path) -> None:
    start, end = START + SECOND, START + 4 * SECOND + 1
    assert column(Store(store).messages(start=start, end=end)) == list(range(6, 27))
    aware = datetime.fromtimestamp(start // SECOND, UTC)
    assert column(Store(store).messages(start=aware))[0] == 6
    assert column(Store(store).messages(start=aware.replace(tzinfo=None)))[0] == 6
    assert column(Store(store).messages(end=START)) == []
    assert column(Store(store).messages(start=START + HOUR_NS)) == []
    assert column(Store(store).rows("events", start=start, end=end), "number") == [1, 2, 3, 4]


def test_segment_that_is_converted_before_it_is_opened_is_found_among_the_files(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert_first(path: Path) -> Any:
        monkeypatch.undo()
        convert_segment(store, segment_path(store, 4))
        return open_segment(path)

    monkeypatch.setattr(reading, "open_segment", convert_first)
    assert column(Store(store).messages()) == list(range(36))


def test_segment_that_is_converted_while_the_files_are_listed_is_read_once(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = segment_path(store, 4).read_bytes()
    convert_segment(store, segment_path(store, 4))
    segment_path(store, 4).write_bytes(segment)  # As if the crash came before it was removed.
    assert column(Store(store).messages()) == list(range(36))
    assert column(Store(store).rows("events"), "number") == list(range(6))


def test_files_that_are_compacted_while_they_are_read_are_found(store: Path) -> None:
    reader = Store(store).messages()
    got = [next(reader)["offset"].to_pylist()]
    for file in data_files(store, "messages"):
        if file.first < 12:
            file.path.unlink()
    got += [batch["offset"].to_pylist() for batch in reader]
    assert [offset for part in got for offset in part] == list(range(36))


def test_file_that_cannot_be_read_is_a_fault_and_the_rest_is_read(store: Path) -> None:
    broken = data_files(store, "messages")[-1].path
    broken.write_bytes(b"rubbish")
    with pytest.raises(StoreError, match="store verify"):
        list(Store(store).messages())
    faults: list[str] = []
    offsets = column(Store(store).messages(on_fault=faults.append))
    assert offsets == [*range(18), *range(24, 36)]
    assert len(faults) == 1 and str(broken) in faults[0]


def test_flipped_bit_of_a_file_is_a_fault_and_not_another_message(store: Path) -> None:
    broken = data_files(store, "messages")[-1].path
    data = bytearray(broken.read_bytes())
    place = data.index(b"(\xb5/\xfd")  # The first compressed page.
    data[place + 20] ^= 1
    broken.write_bytes(data)
    faults: list[str] = []
    list(Store(store).messages(on_fault=faults.append))
    assert len(faults) == 1


def test_no_store_no_table_and_no_column_are_errors(store: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no store"):
        Store(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="is no table"):
        list(Store(store).rows("colours"))
    with pytest.raises(StoreError, match="is no column"):
        list(Store(store).messages(columns=["colour"]))
    with pytest.raises(StoreError, match="is no time"):
        list(Store(store).messages(start="noon"))  # type: ignore[arg-type]


def test_info_tells_what_there_is(store: Path) -> None:
    info = Store(store).info()
    assert (info.messages, info.size_bytes, info.rows["events"]) == (36, 36 * 64, 6)
    assert (info.first_offset, info.next_offset, info.recorders) == (0, 36, {RECORDER.hex()})
    assert (info.start_ns, info.end_ns) == (START, START + int(5.5 * SECOND))
    assert (info.segments_open, info.segments_closed, info.segments_damaged) == (1, 1, 0)
    assert (info.files_compacted, info.recorder_pid) == (2, None)
    temp, rate = info.topics[TOPIC.subject], info.topics[RATE.subject]
    assert (temp.messages, temp.sources, temp.schemas) == (18, {"00" * 12}, set())
    assert rate.schemas == {"Rate"} and rate.rate == pytest.approx(17 / 5)


def test_acknowledged_is_what_was_synced_for_certain(store: Path) -> None:
    info = Store(store).info()
    assert info.acknowledged == 30  # The records of the open segment do not say that they were.
    with open_segment(segment_path(store, 5)) as segment:
        assert segment.is_closed is False


def test_empty_store_has_nothing_to_tell(tmp_path: Path) -> None:
    info = Store(make_store(tmp_path)).info()
    assert (info.messages, info.start_ns, info.topics) == (0, None, {})


def test_missing_arrow_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "hubbub.store.store")
    with pytest.raises(hubbub.MissingExtra, match=r"hubbub\[recorder\]"):
        _ = hubbub.store.Store
