"""Parquet files whose ends rot: nobody is told other values, and no reader is ended by them."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hubbub.store.parquet import Writer, open_parquet, read_end
from hubbub.store.schema import TABLES

ROWS = [{"recorder": "rec", "number": n, "name": f"c{n % 3}", "value": n} for n in range(50)]


def write(path: Path) -> pa.Table:
    table = pa.Table.from_pylist(ROWS, TABLES["counters"])
    with Writer(path, TABLES["counters"]) as writer:
        writer.write(table)
    return table


def test_a_file_with_a_checked_end_is_read_by_others_too(tmp_path: Path) -> None:
    table = write(tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet").equals(table)
    assert read_end(tmp_path / "a.parquet").num_rows == 50


def test_a_file_without_a_check_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    assert read_end(tmp_path / "a.parquet").num_rows == 1


def test_what_is_too_short_to_have_an_end_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"x", b"PAR1PAR1", b"PAR1\xff\xff\xff\xffPAR1"):
        (tmp_path / "a.parquet").write_bytes(content)
        with pytest.raises((OSError, pa.ArrowException)):
            read_end(tmp_path / "a.parquet")


def test_no_flipped_bit_gives_other_values(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table, draw = write(path), random.Random(1)
    content = path.read_bytes()
    refused = 0
    for _ in range(400):
        place, bit = draw.randrange(len(content)), draw.randrange(8)
        rotten = content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]
        path.write_bytes(rotten)
        try:
            with open_parquet(path) as file:
                assert file.read().equals(table), (place, bit)
        except (OSError, pa.ArrowException):
            refused += 1
    assert refused > 300
