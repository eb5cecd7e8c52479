"""`hubbub services`, `ring` and `service` as a user runs them."""

import json
import signal

import pytest

import hubbub
from tests.commands.test_cli import Bus, finish
from tests.integration.bus import DEADLINE_S, wait_until
from tests.integration.link_probe import free_port


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
        (node,) = bus.run("ring").stdout.decode().splitlines()[1:]
        assert node.split()[-1] == "hype-news"  # Without a name, of what there is.
        shown = bus.run("services").stdout.decode()
        assert "hype-news" in shown and found["manager"][:12] in shown
        (listed,) = json.loads(bus.run("services", "hype-news", "--json").stdout)
        assert [one["id"] for one in listed["nodes"]] == [found["manager"]]
        who = bus.run("services", "--who").stdout.decode().splitlines()
        assert len(who) == 2 and who[1].startswith("hype-news")
        assert found["manager"][:12] in who[1] and who[1].endswith("manages, subscribes")
        assert bus.run("services", "unheard-of").returncode == 1
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


@pytest.mark.parametrize("is_option", [True, False])
def test_subjects_travel_by_services_where_the_command_or_the_environment_says_so(
    bus: Bus, is_option: bool
) -> None:
    options = ["--links", "services"] if is_option else []
    bus.environment["HUBBUB_LINKS"] = "multicast" if is_option else "services"  # Flags come first.
    if not is_option:
        bus.environment["HUBBUB_MULTICAST"] = "false"
    place = f"127.0.0.1:{free_port()}"
    bus.environment["HUBBUB_LISTEN"] = place
    with bus.start("sub", "/plant/...", "--json", "-n", "2", *options) as reader:
        del bus.environment["HUBBUB_LISTEN"]
        bus.environment["HUBBUB_PEERS"] = place
        waited = bus.run("pub", "/plant/temp", "21.5", "--wait-subs", "1", *options)
        assert waited.returncode == 0, waited.stderr
        plain = bus.run("pub", "/plant/temp", "22", *options)
        assert plain.returncode == 0 and b"nobody" not in plain.stderr, plain.stderr
        code, out, _ = finish(reader)
    assert code == 0
    assert [json.loads(line)["payload"] for line in out.splitlines()] == ["21.5", "22"]


def test_commands_see_a_bus_as_its_nodes_do_if_they_are_told_its_options(bus: Bus) -> None:
    options = {
        "domain": bus.environment["HUBBUB_DOMAIN"], "interface": "127.0.0.1", "multicast": False,
        "listen": 0, "links": ["services"],
        "services": hubbub.ServiceOptions(placement="hrw", service_levels=2),
    }  # fmt: skip
    bus.environment["HUBBUB_MULTICAST"] = "false"
    bus.environment["HUBBUB_SERVICES"] = "placement=hrw,service_levels=2"
    names = [f"s{number}" for number in range(12)]
    with hubbub.open("first", **options) as first:
        bus.environment["HUBBUB_PEERS"] = first.services.address
        with hubbub.open("second", peers=[first.services.address], **options) as second:
            assert first.services.wait_for_members(1, DEADLINE_S)
            expected = {name: first.services.manager_of(name) for name in names}
            ring = json.loads(bus.run("ring", *names, "--json").stdout)
            assert ring["managers"] == expected
            warm = second.subscribe("/plant/line1/temp")
            told = bus.run(
                "pub", "/plant/line1/temp", "21", "--links", "services", "--wait-subs", "1"
            )
            assert told.returncode == 0, told.stderr
            message = warm.receive(DEADLINE_S)
            assert message is not None and message.payload == b"21"


def test_peers_that_do_not_answer_are_named(bus: Bus) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    done = bus.run("service", "pub", "hype-news", "21.5", "--peers", nobody)
    assert done.returncode == 1 and f"no node answers at {nobody}".encode() in done.stderr


def test_delay_is_refused_where_nobody_tells_when_messages_were_published(bus: Bus) -> None:
    done = bus.run("delay", "/...", "--links", "services", "-n", "1")
    assert done.returncode == 2 and b"nobody tells there when" in done.stderr
