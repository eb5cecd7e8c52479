"""New files of a recording are noticed, and folders in which nothing happened are not listed."""

import os
from pathlib import Path

import pytest

from hubbub.limits import SECOND
from hubbub.pipeline import noticing
from hubbub.pipeline.noticing import Notices, Signals
from hubbub.pipeline.recording import name_of
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
    assert notices.waiting(set()) == []
    for number in (2, 1):
        add(tmp_path, number)
    add(tmp_path, 1, table="events")
    waiting = notices.waiting(set())
    assert [(file.segment, file.table) for file in waiting] == [
        (1, "events"), (1, "messages"), (2, "messages"),
    ]  # fmt: skip
    done = {name_of(file) for file in waiting[:2]}
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
    assert len(notices.waiting(set())) == len(listed) == 2
    listed.clear()
    assert len(notices.waiting(set())) == 2
    assert listed == []
    new = add(tmp_path, 2, HOURS[1])
    assert len(notices.waiting(set())) == 3
    assert listed == [new.parent]


def test_folder_that_has_just_changed_is_not_believed(tmp_path: Path, listed: list[Path]) -> None:
    folder = add(tmp_path, 1).parent
    notices = Notices(tmp_path)
    changed_ns = folder.stat().st_mtime_ns
    notices.waiting(set())
    add(tmp_path, 2)
    os.utime(folder, ns=(changed_ns, changed_ns))  # Within one tick of the disk's clock.
    assert len(notices.waiting(set())) == 2


def test_what_is_remembered_is_looked_at_again_each_minute(
    tmp_path: Path, listed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, 1)
    settle(tmp_path)
    notices = Notices(tmp_path)
    notices.waiting(set())
    monkeypatch.setattr(noticing, "LISTING_KEPT_S", 0.0)
    notices.waiting(set())
    assert len(listed) == 2


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
