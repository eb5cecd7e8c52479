"""The wheel, installed without extras into an empty environment, is all that two nodes need."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.integration.bus import ROOT, fresh_place

TALK = """
import sys
import hubbub
assert "site-packages" in hubbub.__file__, hubbub.__file__
options = {"domain": sys.argv[1], "interface": "127.0.0.1"}
with hubbub.open("one", **options) as one, hubbub.open("two", **options) as two:
    subscription = two.subscribe("/plant/*/temp")
    publisher = one.publisher("/plant/line1/temp")
    assert publisher.wait_for_subscribers(1, 10)
    publisher.publish(b"21.5")
    message = subscription.receive(10)
    print(message.subject, message.payload.decode(), message.source.name)
"""


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command away from the checkout, with nothing of it on the path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=100, env=environment, **options
    )


def skip_without_an_index(errors: str) -> None:
    for package in ("hatchling", "msgspec"):
        if f"No matching distribution found for {package}" in errors:
            pytest.skip(f"no package index here: {package} cannot be fetched")


def pip(environment: Path) -> tuple[str | Path, ...]:
    """Return our own pip, told to work on another environment: that need not have one."""
    return (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", environment)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w")
    done = run(*build, folder, ROOT, cwd=folder, check=False)
    skip_without_an_index(done.stderr)
    assert done.returncode == 0, done.stderr
    [path] = folder.glob("hubbub-*.whl")
    return path


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """Install the wheel into an environment of its own; return the folder of its commands."""
    folder = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", "--without-pip", folder, check=True)
    done = run(*pip(folder), "install", "--quiet", "--no-compile", wheel, check=False, cwd=folder)
    skip_without_an_index(done.stderr)
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def test_wheel_holds_the_package_and_says_that_it_is_typed(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "hubbub/py.typed" in names
    assert "hubbub/__init__.py" in names and "hubbub/cli/main.py" in names
    assert "pyspark_hubbub/__init__.py" in names  # By this name Spark finds the data source.
    assert [name for name in names if name.startswith(("tests/", "benchmarks/"))] == []


def test_without_extras_two_nodes_talk(empty: Path) -> None:
    done = run(empty / "python", "-c", TALK, fresh_place().domain, cwd=empty, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "/plant/line1/temp 21.5 one\n"
    packages = run(*pip(empty.parent), "list", "--format", "freeze", cwd=empty, check=True)
    names = {line.split("==")[0] for line in packages.stdout.splitlines()}
    assert names == {"hubbub", "msgspec"}


def test_missing_extra_is_one_line_with_the_command_that_installs_it(empty: Path) -> None:
    done = run(empty / "hubbub", "pub", "/x", "y", cwd=empty, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "pip install 'hubbub[cli]'" in line
