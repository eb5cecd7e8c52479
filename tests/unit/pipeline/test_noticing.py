"""New files of a recording are noticed, and folders in which nothing happened are not listed."""

import os
from pathlib import Path

import pytest

from hubbub.limits import SECOND
from hubbub.pipeline import noticing
from hubbub.pipeline.done import Closed, Done
from hubbub.pipeline.noticing import Notices, Signals
from hubbub.pipeline.recording import name_of
from hubbub.store.journal import segment_path
from hubbub.store.layout import file_name, hour_folder

HOURS = ("2026-11-16-08", "2026-11-16-09")


def add(store: Path, number: int, hour: str = HOURS[0], table: str = "messages") -> Path:
    """Put a file into a store."""
    path = hour_folder(store, table, hour) / file_name(number, 10 * number, 10 * number + 9)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def settle(store: Path, age_s: float = 10) -> None:
    """Let all folders have changed a while ago."""
    for folder in store.glob("*/hour=*"):
        then_ns = folder.stat().st_mtime_ns - round(age_s * SECOND)
        os.utime(folder, ns=(then_ns, then_ns))


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the folders of hours that are listed from now on."""
    found: list[Path] = []
    list_folder = noticing.list_folder

    def note(folder: Path) -> list[Path]:
        if folder.name.startswith("hour="):
            found.append(folder)
        return list_folder(folder)

    monkeypatch.setattr(noticing, "list_folder", note)
    return found


def test_files_are_named_once_they_are_there_and_until_they_are_done(tmp_path: Path) -> None:
    notices = Notices(tmp_path)
    assert notices.waiting(Done()) == []
    for number in (2, 1):
        add(tmp_path, number)
    add(tmp_path, 1, table="events")
    waiting = notices.waiting(Done())
    assert [(file.segment, file.table) for file in waiting] == [
        (1, "events"), (1, "messages"), (2, "messages"),
    ]  # fmt: skip
    done = Done().with_names(map(name_of, waiting[:2]), 0)
    assert [file.segment for file in notices.waiting(done)] == [2]
    add(tmp_path, 3)
    assert [file.segment for file in notices.waiting(done)] == [2, 3]


def test_folder_in_which_nothing_happened_is_not_listed_again(
    tmp_path: Path, listed: list[Path]
) -> None:
    for hour in HOURS:
        add(tmp_path, 1, hour)
    settle(tmp_path)
    notices = Notices(tmp_path)
    assert len(notices.waiting(Done())) == len(listed) == 2
    listed.clear()
    assert len(notices.waiting(Done())) == 2
    assert listed == []
    new = add(tmp_path, 2, HOURS[1])
    assert len(notices.waiting(Done())) == 3
    assert listed == [new.parent]


def test_folder_that_has_just_changed_is_not_believed(tmp_path: Path, listed: list[Path]) -> None:
    folder = add(tmp_path, 1).parent
    notices = Notices(tmp_path)
    changed_ns = folder.stat().st_mtime_ns
    notices.waiting(Done())
    add(tmp_path, 2)
    os.utime(folder, ns=(changed_ns, changed_ns))  # Within one tick of the disk's clock.
    assert len(notices.waiting(Done())) == 2


def test_what_is_remembered_is_looked_at_again_each_minute(
    tmp_path: Path, listed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, 1)
    settle(tmp_path)
    notices = Notices(tmp_path)
    notices.waiting(Done())
    monkeypatch.setattr(noticing, "LISTING_KEPT_S", 0.0)
    notices.waiting(Done())
    assert len(listed) == 2


def minutes_later(notices: Notices, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what was seen be a minute old, and everything be listed again."""
    monkeypatch.setattr(noticing, "LISTING_KEPT_S", 0.0)
    if notices.closed is not None:
        notices.closed = notices.closed._replace(time_ns=notices.closed.time_ns - SECOND)


def journal(store: Path, *numbers: int) -> None:
    """Let these segments, and no others, wait to become files."""
    folder = segment_path(store, 0).parent
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for number in numbers:
        segment_path(store, number).touch()


def test_names_of_segments_that_are_gone_are_forgotten_and_their_files_stay_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        add(tmp_path, number)
    journal(tmp_path, 3, 4)  # Of 3 only some files may be there, and 4 is not known to be whole.
    notices = Notices(tmp_path)
    done = Done().with_names(map(name_of, notices.waiting(Done())), notices.settled)
    assert (done.settled, len(done.names)) == (0, 5)
    journal(tmp_path)
    minutes_later(notices, monkeypatch)
    assert notices.waiting(done) == []
    done = done.with_names([], notices.settled)
    assert (done.settled, len(done.names)) == (3, 2)
    add(tmp_path, 3, table="events")
    minutes_later(notices, monkeypatch)
    [late] = notices.waiting(done)
    assert (late.segment, late.table) == (3, "events")
    assert done.with_names([name_of(late)], notices.settled).settled == 3
    minutes_later(notices, monkeypatch)
    done = done.with_names([name_of(late)], notices.settled)
    assert notices.waiting(done) == []
    assert done.with_names([], notices.settled) == Done(5)


def test_what_has_just_been_seen_is_not_settled_nor_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        add(tmp_path, number)
    journal(tmp_path)
    notices = Notices(tmp_path)
    waiting = notices.waiting(Done())
    monkeypatch.setattr(notices, "_known", {})
    notices.waiting(Done())
    assert notices.settled == 0  # It was seen this very minute.
    done = Done().with_names([name_of(waiting[0])], 0)
    minutes_later(notices, monkeypatch)
    assert [file.segment for file in notices.waiting(done)] == [1, 2]
    assert notices.settled == 1


def test_next_run_settles_what_the_one_before_it_saw(tmp_path: Path) -> None:
    add(tmp_path, 7)
    journal(tmp_path)
    first = Notices(tmp_path)
    done = Done().with_names(map(name_of, first.waiting(Done())), 0)
    assert first.closed is not None and first.closed.segment == 8
    later = Notices(tmp_path, Closed(8, first.closed.time_ns - 3600 * SECOND))
    assert later.waiting(done) == []
    assert later.settled == 8


def test_nothing_is_settled_where_nobody_can_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, 1)
    notices = Notices(tmp_path)
    for _ in range(3):
        notices.waiting(Done())
        minutes_later(notices, monkeypatch)
    assert (notices.closed, notices.settled) == (None, 0)


def test_signal_is_given_once_for_each_step_and_not_again_before_one_begins(tmp_path: Path) -> None:
    signals = Signals(tmp_path / "signals")
    signals.give(0)
    assert list(signals.folder.iterdir()) == []
    signals.give(3)
    signals.give()
    given = set(signals.folder.iterdir())
    assert len(given) == 3
    signals.taken()
    signals.give()
    [last] = signals.folder.iterdir()
    assert last not in given
