"""Links of the documents lead somewhere: to a file, a heading of it, or a test that exists."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.unit.test_originals_table import functions_in

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]*)\)")
DEFINITION = re.compile(r"^\[([^\]]+)\]: (?!https?:)(\S+)$", re.M)  # `[name]` leads there.


@cache
def headings(page: Path) -> frozenset[str]:
    """Name the headings of a page as links do."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return frozenset(re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in titles)


def is_dead(page: Path, link: str) -> bool:
    """Tell whether a link of a page leads nowhere."""
    path, _, part = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return True
    if part.startswith("test_"):
        return part not in functions_in(str(target.relative_to(ROOT)))
    return bool(part) and part not in headings(target)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    links = LINK.findall(text) + [link for _, link in DEFINITION.findall(text)]
    assert [link for link in links if is_dead(page, link)] == []


@pytest.mark.parametrize(
    "link",
    ["docs/nowhere.md", "README.md#no-such-heading", "tests/unit/test_links.py#test_nothing"],
)
def test_dead_link_is_found(link: str) -> None:
    assert is_dead(ROOT / "README.md", link)


def test_every_promise_of_the_readme_names_tests() -> None:
    section = (ROOT / "README.md").read_text().split("## What is promised")[1].split("\n## ")[0]
    tests = {name for name, link in DEFINITION.findall(section) if "#test_" in link}
    promises = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(promises) >= 12
    named = [set(re.findall(r"\[([^\]]+)\]", line.split("|")[-2])) for line in promises]
    assert all(names and names <= tests for names in named)
    assert set().union(*named) == tests


def test_every_page_of_the_guide_is_named_by_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    pages = (ROOT / "docs" / "guide").glob("*.md")
    assert [page.name for page in pages if f"docs/guide/{page.name}" not in readme] == []
