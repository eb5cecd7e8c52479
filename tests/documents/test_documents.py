"""Every Python snippet of the documents runs as it is; those with Spark in spark/test_pages.py."""

import os

import pytest

from tests import processes
from tests.pages import PAGES, read_snippets

SNIPPETS = [
    pytest.param(snippet, id=f"{page.name}-{number}")
    for page in PAGES
    for number, snippet in enumerate(read_snippets(page), 1)
]
STRICT = "import warnings; warnings.simplefilter('error')\n"


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippet_runs(snippet: str) -> None:
    environment = {
        **os.environ,
        "HUBBUB_INTERFACE": "127.0.0.1",
        "HUBBUB_DOMAIN": f"documents-{os.getpid()}",
    }
    done = processes.run(
        ["-c", STRICT + snippet], imports=("hubbub",), env=environment, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
