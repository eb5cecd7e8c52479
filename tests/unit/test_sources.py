"""Every statement of the source documents has its row, and the tests that a row names exist."""

from pathlib import Path

import pytest

from tests.tables import read_table
from tests.unit.test_originals_table import missing

FOLDER = Path(__file__).parents[2] / "docs" / "guide" / "sources"
# How many statements each source makes, as they were counted when it was read.
STATEMENTS = {"distributor": 29, "ecal": 19, "hype": 26, "p3": 33, "rodos": 15}
ROWS = [
    pytest.param(row, id=f"{page.stem}-{number}")
    for page in sorted(FOLDER.glob("*.md"))
    for number, row in enumerate(read_table(page.read_text()), 1)
]


def test_every_source_has_a_page_with_all_its_statements() -> None:
    found = {page.stem: len(read_table(page.read_text())) for page in FOLDER.glob("*.md")}
    assert found == STATEMENTS


@pytest.mark.parametrize("row", ROWS)
def test_row_has_a_statement_tests_that_exist_and_what_is_otherwise(row: list[str]) -> None:
    said, _, tests, deviation = row
    assert len(said) > 15 and tests and deviation
    assert missing(tests) == []
