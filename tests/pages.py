"""What the documents tell a reader to type, and who types it.

Every command of the README and of the guide stands in a block of `console` behind a `$`, every
snippet in one of `python`. Most commands are played page by page (documents/test_pages.py), what
needs Spark on the session that its tests share (spark/test_pages.py). Others are run by a test of
their own, which is named here with the reason.
"""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.S | re.M)

# Commands that no page is played with: a pattern, and the test that runs them.
ELSEWHERE = {
    # They install, or run this very suite.
    r"git clone ": "tests/commands/test_wheel.py::test_without_extras_two_nodes_talk",
    r"pip install ": "tests/commands/test_wheel.py::"
    "test_missing_extra_is_one_line_with_the_command_that_installs_it",
    r"\. \.venv/bin/activate": "tests/commands/test_cli.py::test_package_is_the_command",
    r"make demo": "tests/documents/test_examples.py::"
    "test_demo_loses_frames_and_no_message_and_points_out_who_was_killed",
    r"make test": "tests/unit/test_house.py::test_ci_runs_exactly_what_a_desk_runs",
    # It changes the machine, and needs root.
    r"sudo sysctl ": "tests/unit/cli/test_doctor.py::"
    "test_small_buffer_is_mended_by_the_command_that_is_shown",
    # They need a cluster, of processes of their own.
    r"export SPARK_HOME=": "tests/spark/test_cluster.py::test_sweep_on_a_cluster",
    r"\$SPARK_HOME/bin/spark-class ": "tests/spark/test_cluster.py::test_sweep_on_a_cluster",
    r"\$SPARK_HOME/bin/spark-submit .* pipeline run ": "tests/spark/test_cluster.py::"
    "test_spark_submit_makes_tables",
    r"\$SPARK_HOME/bin/spark-submit .* simulate ": "tests/spark/test_cluster.py::"
    "test_spark_submit_runs_a_sweep",
    r".*hubbub simulate .*--master ": "tests/spark/test_cluster.py::test_sweep_on_a_cluster",
    r"hubbub pipeline run .*--master ": "tests/spark/test_cluster.py::"
    "test_both_workers_digest_and_the_tables_are_those_of_one_machine",
    r"hubbub pipeline check .*--master ": "tests/spark/test_cluster.py::"
    "test_a_recording_is_checked_on_a_cluster",
}
NEEDS_SPARK = re.compile(r"hubbub (pipeline |report |simulate .*--spark)")
_READS_WITH_SPARK = re.compile(r'\b(spark|frame)\.|"tables"')


class Command(NamedTuple):
    """A command of a page, and what the page shows below it."""

    text: str
    shown: tuple[str, ...]
    block: int  # The number of its block.

    @property
    def is_run_elsewhere(self) -> bool:
        return any(re.match(pattern, self.text) for pattern in ELSEWHERE)

    @property
    def needs_spark(self) -> bool:
        return NEEDS_SPARK.match(self.text) is not None


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks of a page in a language."""
    return [text for name, text in BLOCK.findall(page.read_text()) if name == language]


def read_commands(page: Path) -> list[Command]:
    """Return the commands of a page; one that goes on in the next line is one."""
    commands = []
    for number, block in enumerate(blocks(page, "console")):
        whole = re.sub(r"\\\n *", "", block)
        for part in re.split(r"^\$ ", whole, flags=re.M)[1:]:
            text, *shown = part.splitlines()
            commands.append(Command(text, tuple(shown), number))
    return commands


def read_snippets(page: Path, *, with_spark: bool = False) -> list[str]:
    """Return the Python of a page: what stands by itself, or what needs Spark or its tables."""
    return [
        snippet
        for snippet in blocks(page, "python")
        if bool(_READS_WITH_SPARK.search(snippet)) == with_spark
    ]
