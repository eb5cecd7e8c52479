"""Every defect of the originals that docs/ lists has tests, and they exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from hubbub.simulation import list_scenarios
from tests.tables import section

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "originals.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)(?:\[(\w+)\])?`")

# The tests that would catch their bugs, as those who read their sources asked for them.
BULLETS = [
    "first message after create", "kill -9 of a subscriber during Send",
    "re-subscribe within the timeout", "lost ack", "reordering and equal timestamps",
    "11th and 33rd node", "tail loss", "destroy inside callback",
    "forged length, index and fragment number", "mixed endianness", "descriptor > 64 KiB",
    "200 Hz small messages beside 10 Hz images", "1000+ entities",
]  # fmt: skip

# A title, if it has one, what goes wrong, and a list of tests.
DEFECT = re.compile(r"(?:^### (.*)\n)?((?:^[^-#\n].*\n)+)\n((?:^- .*\n?)+)", re.M)
SCENARIOS = DEFECT.findall(section(TEXT, "Scenarios"))
DEFECTS = SCENARIOS + DEFECT.findall(section(TEXT, "Further defects"))


@cache
def functions_in(path: str) -> frozenset[str]:
    """Name the functions of a file."""
    file = ROOT / path
    tree = ast.parse(file.read_text()) if file.exists() else ast.Module([], [])
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))


def missing(cell: str) -> list[str]:
    """Name what a cell promises and nobody keeps."""
    named = list(NAMED.finditer(cell))
    rest = NAMED.sub("", cell).split()
    return rest + [
        match[0]
        for match in named
        if match[2] not in functions_in(match[1]) or match[3] not in (None, *list_scenarios())
    ]


def test_every_bullet_has_its_place() -> None:
    assert [title for title, _, _ in SCENARIOS] == BULLETS
    assert len(DEFECTS) == 24


@pytest.mark.parametrize(
    ("title", "text", "tests"), DEFECTS, ids=[title or text[:40] for title, text, _ in DEFECTS]
)
def test_defect_says_what_goes_wrong_and_names_tests_that_exist(
    title: str, text: str, tests: str
) -> None:
    assert len(text) > 20, title
    assert tests and missing(tests.replace("- ", " ")) == []


@pytest.mark.parametrize(
    "cell",
    [
        "`tests/unit/test_nothing.py::test_x`", "`tests/unit/test_originals_table.py::test_x`",
        "`tests/unit/test_originals_table.py::missing`", "none yet",
        "`tests/unit/test_originals_table.py::test_every_bullet_has_its_place[no_scenario]`",
    ],
)  # fmt: skip
def test_name_of_a_test_that_does_not_exist_is_found(cell: str) -> None:
    assert missing(cell) != []
