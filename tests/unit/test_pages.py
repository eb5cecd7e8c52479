"""Nothing that a reader could type or copy from the README and the guide escapes the tests."""

import re
from pathlib import Path

import pytest

from tests.pages import BLOCK, ELSEWHERE, PAGES, ROOT, blocks, read_commands, read_snippets

# Who tries a block: `console` and `python` are played, `sql` and `toml` read, `ini` is checked.
LANGUAGES = {"console", "python", "toml", "ini", "sql"}
PROGRAMS = "hubbub|make|pip|git|python3?|sudo|export|openssl"
TYPED = re.compile(rf"^ *(\$ |[A-Z_]+=\S+ )?({PROGRAMS}) ", re.M)


def loose_text(page: Path) -> str:
    """Return what stands outside blocks that are tried."""
    return BLOCK.sub(lambda found: "" if found[1] in LANGUAGES else found[2], page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_is_one_that_is_tried(page: Path) -> None:
    assert {language for language, _ in BLOCK.findall(page.read_text())} <= LANGUAGES
    assert TYPED.findall(loose_text(page)) == []
    for block in blocks(page, "console"):
        assert block.startswith("$ ") or not TYPED.search(block), "what is typed has a `$`"


def test_command_that_escapes_is_found() -> None:
    for text in ("    hubbub pub /a 1\n", "    X=1 python -m x\n", "text\n\n    $ make demo\n"):
        assert TYPED.search(text)


@pytest.mark.parametrize("named", sorted(set(ELSEWHERE.values())))
def test_test_that_is_said_to_run_a_command_exists(named: str) -> None:
    path, _, name = named.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text()


def test_every_exception_is_still_needed() -> None:
    texts = [command.text for page in PAGES for command in read_commands(page)]
    for pattern in ELSEWHERE:
        assert any(re.match(pattern, text) for text in texts), pattern


def test_snippets_with_spark_are_those_that_its_tests_run() -> None:
    pages = {page.stem for page in PAGES if read_snippets(page, with_spark=True)}
    assert pages == {"spark", "pipeline"}
