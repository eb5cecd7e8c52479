"""Files that docs/architecture.md and the README's way through the code name are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = (ROOT / "src" / "hubbub", ROOT)


@pytest.mark.parametrize("page", ["docs/architecture.md", "README.md"])
def test_files_that_are_named_are_there(page: str) -> None:
    named = set(re.findall(r"`([a-z_/]+\.py)`", (ROOT / page).read_text()))
    assert len(named) > 10
    assert [
        one for one in sorted(named) if not any((place / one).exists() for place in PLACES)
    ] == []
