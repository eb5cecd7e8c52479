"""Every statement of the source documents is quoted, answered, and has tests that exist."""

import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.test_originals_table import missing

FOLDER = Path(__file__).parents[2] / "docs" / "guide" / "sources"
# How many statements each source makes, as they were counted when it was read.
STATEMENTS = {"distributor": 35, "ecal": 21, "hype": 27, "p3": 42, "rodos": 17}


class Answer(NamedTuple):
    """A quote of a source, and the points of the list below it."""

    said: str
    points: list[str]


def read_answers(text: str) -> list[Answer]:
    """Return the quotes of a page, each with what is said to it."""
    blocks = text.strip().split("\n\n")
    return [
        Answer(quote[2:].replace("\n> ", " "), below[2:].replace("\n  ", " ").split("\n- "))
        for quote, below in pairwise(blocks)
        if quote.startswith("> ")
    ]


PAGES = {page.stem: page.read_text() for page in sorted(FOLDER.glob("*.md"))}
ANSWERS = [
    pytest.param(answer, id=f"{name}-{number}")
    for name, text in PAGES.items()
    for number, answer in enumerate(read_answers(text), 1)
]


def test_every_source_has_a_page_with_all_its_statements() -> None:
    assert {name: len(read_answers(text)) for name, text in PAGES.items()} == STATEMENTS


@pytest.mark.parametrize("answer", ANSWERS)
def test_statement_is_answered_and_its_tests_exist(answer: Answer) -> None:
    here, otherwise, *tests = answer.points
    assert len(answer.said) > 15
    assert re.match(r"\*\*Here\*\*: .{5}", here)
    assert otherwise == "**As written.**" or re.match(r"\*\*Otherwise\*\*: .{5}", otherwise)
    assert tests and missing(" ".join(tests)) == []
