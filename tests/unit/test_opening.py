"""How nodes are called whose users did not name them."""

import os
import socket
import sys

import pytest

from hubbub.limits import NODE_NAME_BYTES_MAX
from hubbub.opening import name_after, what_runs


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("/home/me/temperature.py", "temperature"),
        ("temperature", "temperature"),
        ("/usr/lib/python3/robot/__main__.py", "robot"),
        ("-c", "python"),
        ("", "python"),
        ("-", "python"),
    ],
)
def test_node_is_called_after_its_script(
    monkeypatch: pytest.MonkeyPatch, script: str, name: str
) -> None:
    monkeypatch.setattr(sys, "argv", [script])
    assert what_runs() == name


def test_process_and_host_keep_names_apart() -> None:
    assert name_after("pub") == f"pub-{os.getpid()}@{socket.gethostname()}"


def test_name_of_a_long_or_strange_script_is_one_that_a_node_may_have() -> None:
    name = name_after("\x1b" + "ä" * 300)
    assert name.isprintable() and name.startswith("ää")
    assert NODE_NAME_BYTES_MAX - 1 <= len(name.encode()) <= NODE_NAME_BYTES_MAX
