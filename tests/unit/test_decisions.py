"""The records in docs/decisions are whole, and listed in their index."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "decisions"
INDEX = (FOLDER / "README.md").read_text()
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
PARTS = ("Context", "Decision", "Consequences", "Rejected")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_record_has_all_its_parts_in_order(record: Path) -> None:
    text = record.read_text()
    places = [text.find(f"**{part}") for part in PARTS]
    assert -1 not in places and places == sorted(places)


def test_index_has_a_line_for_each_record() -> None:
    wanted = [
        f"| [{title[:4]}]({record.name}) | {title[5:]} |"
        for record in RECORDS
        for title in [record.read_text().partition("\n")[0].removeprefix("# ")]
    ]
    assert [line for line in INDEX.splitlines() if line.startswith("| [")] == wanted


def test_numbers_that_are_missing_are_those_that_the_index_names() -> None:
    there = {int(record.name[:4]) for record in RECORDS}
    [said] = re.findall(r"([0-9, ]+and [0-9]+) were never finished", INDEX)
    assert set(range(1, max(there))) - there == set(map(int, re.findall(r"[0-9]+", said)))


def test_decisions_that_are_referred_to_are_there() -> None:
    there = {int(record.name[:4]) for record in RECORDS}
    pages = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    named = {
        (path.name, int(number))
        for path in pages
        for number in re.findall(r"\bdecisions? ([0-9]+)\b", path.read_text())
    }
    assert len(named) > 30
    assert [one for one in sorted(named) if one[1] not in there] == []
