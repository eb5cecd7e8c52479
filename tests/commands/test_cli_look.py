"""`hubbub ls`, `info` and `graph` as a user runs them."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import hubbub
from tests.commands.test_cli import TIMEOUT_S, Bus, finish, one_line

COMMANDS = ["ls", "graph"]


@pytest.fixture
def bus() -> Bus:
    return Bus()


@contextmanager
def node_of(bus: Bus, name: str) -> Iterator[hubbub.Node]:
    environment = bus.environment
    with hubbub.open(
        name, domain=environment["HUBBUB_DOMAIN"], interface=environment["HUBBUB_INTERFACE"]
    ) as node:
        yield node


def ask(bus: Bus, is_right: Callable[[Any], bool], *arguments: str) -> Any:
    """Ask again until the answer is right: a busy machine may answer late."""
    end_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end_s:
        answer = json.loads(bus.run(*arguments, "--json").stdout)
        if is_right(answer):
            return answer
    raise AssertionError(f"never right: {answer}")


def test_ls_lists_what_is_declared_before_anything_is_published(bus: Bus) -> None:
    with node_of(bus, "p") as node, node_of(bus, "s") as other:
        node.publisher("/plant/temp", type=float)
        node.publisher("/plant/rate", reliable=False)
        other.subscribe(["/plant/*", "/other"])
        found = ask(bus, lambda answer: len(answer["topics"]) == 3, "ls")
        assert [one["subject"] for one in found["topics"]] == [
            "/other", "/plant/rate", "/plant/temp",
        ]  # fmt: skip
        temperature = found["topics"][2]
        [publisher], [subscriber] = temperature["publishers"], temperature["subscribers"]
        assert (publisher["name"], publisher["type"], publisher["reliable"]) == ("p", "float", True)
        assert publisher["id"] == node.id.hex() and publisher["sequence"] == 0
        assert (subscriber["name"], subscriber["patterns"]) == ("s", ["/plant/*"])
        assert temperature["messages_per_second"] is None
        shown = bus.run("ls", "/plant/...", "--wait", "1")
        assert (shown.returncode, shown.stderr) == (0, b"")
        assert [line.split() for line in shown.stdout.decode().splitlines()] == [
            ["subject", "type", "publishers", "subscribers"],
            ["/plant/rate", "-", "1", "1"],
            ["/plant/temp", "float", "1", "1"],
        ]
        named = bus.run("ls", "/plant/temp", "-v", "--wait", "1").stdout.decode().splitlines()[1]
        assert named.split()[2:] == [f"p#{node.id.hex()[:6]}", f"s#{other.id.hex()[:6]}"]


def test_ls_measures_rates_only_when_asked(bus: Bus) -> None:
    with bus.start("pub", "/fast", "x", "-r", "100"):
        ask(bus, lambda answer: len(answer["topics"]) == 1, "ls")
        found = ask(
            bus, lambda answer: answer["topics"][0]["messages_per_second"] > 30,
            "ls", "/fast", "--rate", "1",
        )  # fmt: skip
    [topic] = found["topics"]
    assert topic["messages_per_second"] < 150
    assert topic["subscribers"] == [], "who looks is not shown"


def test_info_shows_both_ends_of_a_subject(bus: Bus) -> None:
    with node_of(bus, "p") as node, node_of(bus, "s") as other:
        publisher = node.publisher("/plant/temp", type=float)
        other.subscribe("/plant/...")
        assert publisher.wait_for_subscribers(1, 10)
        for value in range(5):
            publisher.publish(float(value))
        assert node.flush(10)
        found = ask(
            bus, lambda answer: len(answer["publishers"]) == len(answer["subscribers"]) == 1,
            "info", "/plant/temp",
        )  # fmt: skip
        assert (found["subject"], found["publishers"][0]["sequence"]) == ("/plant/temp", 5)
        shown = bus.run("info", "/plant/temp", "--wait", "1").stdout.decode().splitlines()
        assert shown[0] == "publishers" and shown[2].split()[4:] == ["float", "reliable", "5"]
        assert shown[4] == "subscribers" and shown[6].split()[-1] == "/plant/..."
        disagreeing = other.publisher("/plant/temp", type=int)
        ask(bus, lambda answer: len(answer["publishers"]) == 2, "info", "/plant/temp")
        said = bus.run("info", "/plant/temp", "--wait", "1").stderr.decode()
        assert "the publishers of /plant/temp do not agree on its type: float, int" in said
        disagreeing.close()
        alone = ask(bus, lambda answer: bool(answer["subscribers"]), "info", "/plant/new")
        assert alone["publishers"] == []


def test_graph_shows_who_talks_to_whom(bus: Bus) -> None:
    with node_of(bus, "p") as node, node_of(bus, "s") as other:
        node.publisher("/a")
        node.publisher("/idle")
        other.subscribe("/a")
        found = ask(bus, lambda answer: len(answer["edges"]) == 2, "graph")
        ends = {one["subject"]: (one["from"], one["to"]) for one in found["edges"]}
        assert ends == {
            "/a": (node.id.hex(), other.id.hex()), "/idle": (node.id.hex(), None)
        }  # fmt: skip
        p, s = (f"{name}#{one.id.hex()[:6]}" for name, one in (("p", node), ("s", other)))
        shown = bus.run("graph", "--wait", "1").stdout.decode().splitlines()
        assert shown == [p, f"  /a -> {s}", "  /idle -> nobody"]
        drawn = bus.run("graph", "/a", "--dot", "--wait", "1").stdout.decode().splitlines()
        assert drawn[0] == "digraph hubbub {" and drawn[-1] == "}"
        assert f'  "{node.id.hex()}" -> "/a";' in drawn
        assert f'  "/a" -> "{other.id.hex()}";' in drawn


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_to_list_is_one_line_and_exit_code_1(bus: Bus, command: str) -> None:
    ended = bus.run(command, "/nothing/*")
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert "no topic matches /nothing/* in domain test-" in one_line(ended.stderr)
    assert ended.stderr.endswith(b"(0 other nodes)\n")
    assert bus.run(command, "--json").returncode == 1


def test_subject_without_anybody_is_one_line_and_exit_code_1(bus: Bus) -> None:
    ended = bus.run("info", "/nothing")
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert "nobody publishes or wants /nothing in domain test-" in one_line(ended.stderr)
    found = json.loads(bus.run("info", "/nothing", "--json").stdout)
    assert found == {"subject": "/nothing", "publishers": [], "subscribers": [], "gateways": []}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ls", "no-slash"), "does not begin with '/'"),
        (("graph", "/.../x"), "'...'"),
        (("info", "/a/*"), "hubbub ls -v '/a/*'"),
    ],
)
def test_bad_names_are_one_line_and_exit_code_2(
    bus: Bus, arguments: tuple[str, ...], said: str
) -> None:
    ended = bus.run(*arguments)
    assert ended.returncode == 2 and said in one_line(ended.stderr)


def test_looking_can_be_interrupted(bus: Bus) -> None:
    with bus.start("ls", "--wait", "1000") as process:
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        code, out, err = finish(process)
    assert (code, out) == (130, b"") and "Traceback" not in err
