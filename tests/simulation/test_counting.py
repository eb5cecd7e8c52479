"""What was counted stays counted, on the state of the code it was counted on alone."""

from pathlib import Path

from tests.simulation.counting import dump, load, missing, state


def test_counted_seeds_are_read_as_they_were_written() -> None:
    counted = {"loss": {0, 1, 2, 7}, "calm": set(range(25, 50))}
    text = dump(counted, "1234")
    assert "calm 25:50" in text.splitlines() and "loss 0:3 7:8" in text.splitlines()
    assert load(text, "1234") == counted


def test_seeds_of_another_state_and_of_no_state_do_not_count() -> None:
    assert load(dump({"loss": {1}}, "1234"), "5678") == {}
    assert load("", "5678") == {}


def test_only_what_is_missing_is_run() -> None:
    counted = {"loss": set(range(30)) - {3}}
    assert list(missing(["loss", "calm"], counted, 32)) == [
        ("loss", [3]), ("calm", list(range(25))), ("loss", [30, 31]), ("calm", list(range(25, 32))),
    ]  # fmt: skip


def test_words_and_planted_bugs_do_not_begin_the_count_anew_and_code_does(
    tmp_path: Path,
) -> None:
    file, bugs = tmp_path / "protocol" / "machine.py", tmp_path / "simulation" / "bugs.py"
    for one in (file, bugs):
        one.parent.mkdir()
        one.write_text("x = 1\n")
    before = state(tmp_path)
    file.write_text('"""What."""\n# Why.\nx = 1\n')
    bugs.write_text("x = 2\n")
    assert state(tmp_path) == before
    file.write_text("x = 2\n")
    assert state(tmp_path) != before
