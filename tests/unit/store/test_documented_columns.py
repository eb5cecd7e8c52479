"""docs/store.md lists the columns that recordings and tables have, and no others."""

import re
from pathlib import Path

import pytest

from hubbub.pipeline.tables import SHAPES
from hubbub.store.schema import MESSAGES, TABLES
from tests.tables import read_table, section

TEXT = (Path(__file__).parents[3] / "docs" / "store.md").read_text()
RECORDED = section(TEXT, "The tables of a recording")
MADE = {
    row[0].strip("`"): row[1:] for row in read_table(section(TEXT, "The tables of the pipeline"))
}
# What all tables of a recording have that are not `messages`, as the text says above them.
COMMON = re.findall(r"`(\w+)`", RECORDED.split("The other tables")[1].split("|")[0])


def names(cell: str) -> list[str]:
    """Return the columns that a cell names, without what it says of them."""
    return re.sub(r" \(.*?\)", "", cell).replace("`", "").split(", ")


def test_columns_of_messages_are_those_of_the_files() -> None:
    said = [name for row in read_table(RECORDED) for name in names(row[0])]
    assert sorted(said) == sorted(MESSAGES.names)


def test_columns_of_other_rows_are_those_of_the_files() -> None:
    rows = read_table(RECORDED.split("The other tables")[1])
    said = {row[0].strip("`"): sorted(COMMON + names(row[2])) for row in rows}
    others = {name: sorted(columns.names) for name, columns in TABLES.items() if name != "messages"}
    assert said == others


@pytest.mark.parametrize("name", sorted(SHAPES.keys() - {"late"}))
def test_keys_and_columns_of_a_table_are_those_that_it_has(name: str) -> None:
    keys, columns = MADE[name]
    assert names(keys) == list(SHAPES[name].keys)
    assert sorted(names(keys) + names(columns)) == sorted(SHAPES[name].columns.names)


def test_every_table_is_there() -> None:
    assert MADE.keys() == SHAPES.keys()
