"""Versions of a folder of tables: one state at a time, whatever is killed when."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hubbub.errors import ConfigurationError
from hubbub.limits import TABLE_SMALL_BYTES, TABLE_SMALL_FILES_MAX
from hubbub.pipeline import tables
from hubbub.pipeline.parts import thinned
from hubbub.pipeline.tables import SHAPES
from hubbub.pipeline.versions import Versions, hour_of

COLUMNS = SHAPES["service_managers"].columns


def stage(versions: Versions, epoch: int, hour: str = "", service: str = "s") -> Path:
    folder = versions.staging("service_managers")
    folder = folder / f"hour={hour}" if hour else folder
    folder.mkdir(parents=True)
    row: dict[str, Any] = {"service": service, "epoch": epoch}
    path = folder / "part.parquet"
    pq.write_table(pa.Table.from_pylist([row], COLUMNS), path)
    return path


def epochs(path: Path) -> list[int]:
    return sorted(row["epoch"] for row in tables.read(path, "service_managers").to_pylist())


def commit(versions: Versions, files: list[Path], **state: Any) -> None:
    versions.commit({"service_managers": files}, state)


def test_what_is_committed_is_read_and_kept_files_are_linked(tmp_path: Path) -> None:
    versions = Versions(tmp_path)
    with versions.locked():
        commit(versions, [stage(versions, 1)], batch=7)
        first = versions.files("service_managers")
        commit(versions, [*first, stage(versions, 2, "2027-01-15-08")], batch=8)
    assert epochs(tmp_path) == [1, 2]
    assert versions.state() == {"batch": 8}
    names = versions.files("service_managers")
    assert [hour_of(file) for file in names] == ["", "2027-01-15-08"]
    assert names[0].stat().st_ino == first[0].stat().st_ino


def test_any_tool_reads_the_folder_of_a_table(tmp_path: Path) -> None:
    versions = Versions(tmp_path)
    commit(versions, [stage(versions, 1)])
    commit(versions, [stage(versions, 5)])
    assert pq.read_table(tmp_path / "service_managers").column("epoch").to_pylist() == [5]


def test_what_a_killed_run_has_left_is_in_no_version_and_goes(tmp_path: Path) -> None:
    versions = Versions(tmp_path)
    commit(versions, [stage(versions, 1)])
    staged = stage(versions, 2)
    # Killed after the new version was made, before it became the current one.
    half = tmp_path / ".versions" / "000000000002" / "service_managers"
    half.mkdir(parents=True)
    os.link(staged, half / "000000000002-0000.parquet")
    assert epochs(tmp_path) == [1]
    with Versions(tmp_path).locked():
        assert not staged.exists() and not half.exists()
    assert epochs(tmp_path) == [1]


def test_tables_of_a_run_that_was_killed_before_it_showed_them_are_shown_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first commit was its last: the next run had nothing to do, and showed nothing either."""
    versions = Versions(tmp_path)
    with monkeypatch.context() as killed:
        killed.setattr(Versions, "_show", lambda *_: None)
        commit(versions, [stage(versions, 1)])
    assert not (tmp_path / "service_managers").exists()
    with Versions(tmp_path).locked():
        pass
    assert pq.read_table(tmp_path / "service_managers").column("epoch").to_pylist() == [1]


@pytest.mark.parametrize("step", ["link", "symlink", "replace"])
def test_commit_that_ends_at_any_step_leaves_one_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    versions = Versions(tmp_path)
    commit(versions, [stage(versions, 1)])
    fresh = stage(versions, 2)

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, step, killed)
        with pytest.raises(KeyboardInterrupt):
            commit(versions, [fresh])
    assert epochs(tmp_path) == [1]
    with Versions(tmp_path).locked():
        again = Versions(tmp_path)
        commit(again, [stage(again, 2)])
    assert epochs(tmp_path) == [2]


def test_second_run_on_the_same_tables_is_refused(tmp_path: Path) -> None:
    with (
        Versions(tmp_path).locked(),
        pytest.raises(ConfigurationError, match="is written by another run"),
        Versions(tmp_path).locked(),
    ):
        pass


def test_old_versions_go_but_the_one_before_stays(tmp_path: Path) -> None:
    versions = Versions(tmp_path)
    for epoch in range(5):
        commit(versions, [stage(versions, epoch)])
    assert sorted(os.listdir(tmp_path / ".versions")) == ["000000000004", "000000000005"]


def test_many_small_files_become_one(tmp_path: Path) -> None:
    versions = Versions(tmp_path)
    files = [stage(versions, epoch) for epoch in range(TABLE_SMALL_FILES_MAX)]
    assert thinned(versions, files) == files
    files.append(stage(versions, 99))
    few = thinned(versions, files)
    assert len(few) == 1
    commit(versions, few)
    assert epochs(tmp_path) == [*range(TABLE_SMALL_FILES_MAX), 99]


def test_small_files_are_put_together_where_they_lie(tmp_path: Path) -> None:
    versions = Versions(tmp_path)
    large = os.urandom(TABLE_SMALL_BYTES).hex()
    for epoch in range(TABLE_SMALL_FILES_MAX + 2):
        service = large if epoch == 9 else "s"
        kept = versions.files("service_managers")
        commit(versions, thinned(versions, [*kept, stage(versions, epoch, service=service)]))
    assert len(versions.files("service_managers")) == 3
    found = tables.read(tmp_path, "service_managers")["epoch"].to_pylist()
    assert found == list(range(TABLE_SMALL_FILES_MAX + 2))


def test_reading_what_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no tables: make some by"):
        tables.read(tmp_path, "gaps")
    with pytest.raises(ConfigurationError, match="no table 'gabs'; there are messages"):
        tables.read(tmp_path, "gabs")
    (tmp_path / ".versions" / "000000000001").mkdir(parents=True)
    (tmp_path / ".versions" / "000000000001" / "state.json").write_text("{")
    (tmp_path / ".current").symlink_to(".versions/000000000001")
    with pytest.raises(ConfigurationError, match="is damaged"):
        Versions(tmp_path).state()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_folder_of_tables_that_cannot_be_made_is_one_line(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ConfigurationError, match="cannot be written"),
        Versions(tmp_path / place).locked(),
    ):
        pass
