"""`hubbub services`, `ring` and `service` as a user runs them."""

import json
import signal

import pytest

from tests.commands.test_cli import Bus, finish, wait_until


@pytest.fixture
def bus() -> Bus:
    return Bus()


def test_message_is_published_printed_and_the_service_shown(bus: Bus) -> None:
    with bus.start("service", "sub", "hype-news", "--json", "-n", "2") as reader:

        def is_published() -> bool:
            return bus.run("service", "pub", "hype-news", "21.5").returncode == 0

        wait_until(is_published)
        (found,) = json.loads(bus.run("services", "--json").stdout)
        assert (found["name"], found["subscribers"]) == ("hype-news", 1)
        assert found["role"] == "guest"
        ring = json.loads(bus.run("ring", "hype-news", "--json").stdout)
        assert ring["managers"]["hype-news"] == found["manager"]
        assert sum(node["share"] for node in ring["nodes"]) == pytest.approx(1)
        shown = bus.run("services").stdout.decode()
        assert "hype-news" in shown and found["manager"][:12] in shown
        assert bus.run("service", "pub", "hype-news", stdin=b"\xff\xfe\n").returncode == 0
        code, out, _ = finish(reader)
    assert code == 0
    told = [json.loads(line) for line in out.splitlines()]
    assert [(one["payload"], one["encoding"]) for one in told] == [
        ("21.5", "utf-8"), ("//4=", "base64"),
    ]  # fmt: skip


def test_service_without_subscribers_exits_with_1(bus: Bus) -> None:
    done = bus.run("service", "pub", "nobody", "x")
    assert done.returncode == 1
    assert b"nobody subscribes to nobody" in done.stderr
    done = bus.run("services")
    assert done.returncode == 1
    assert b"nobody subscribes to a service" in done.stderr


def test_subscriber_ends_on_an_interrupt(bus: Bus) -> None:
    with bus.start("service", "sub", "hype-news") as reader:
        wait_until(lambda: bus.run("services").returncode == 0)
        reader.send_signal(signal.SIGINT)
        assert finish(reader)[0] == 130
