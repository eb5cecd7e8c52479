"""`hubbub gateway` as a user runs it."""

import json
import secrets
import signal
import socket
from pathlib import Path

from tests.commands.test_cli import Bus, finish

LEFT, RIGHT = (f"test-{side}-{secrets.token_hex(6)}" for side in ("left", "right"))
SIDES = ("--side", f"name=left,domain={LEFT}", "--side", f"name=right,domain={RIGHT}")


def test_gateway_passes_on_and_says_so_at_its_end() -> None:
    bus = Bus()
    with (
        bus.start("gateway", *SIDES, "--name", "gw-1") as gateway,
        bus.start("sub", "/t/*", "-n", "1", "--domain", RIGHT) as reader,
    ):
        assert bus.run("pub", "/t/x", "21.5", "-w", "1", "--domain", LEFT).returncode == 0
        code, out, _ = finish(reader)
        assert code == 0 and b"21.5" in out
        told = json.loads(bus.run("ps", "--json", "--wait", "2", "--domain", RIGHT).stdout)
        (gateway_told,) = told["gateways"]
        assert (gateway_told["name"], gateway_told["is_standby"]) == ("gw-1", False)
        assert [(side["name"], side["is_open"]) for side in gateway_told["sides"]] == [
            ("left", True), ("right", True),
        ]  # fmt: skip
        with bus.start("sub", "/t/only", "--domain", LEFT):
            done = bus.run("ps", "--wait", "3", "--domain", RIGHT)
            listed = bus.run("ls", "--wait", "3", "--domain", RIGHT)
            far = json.loads(bus.run("ls", "--wait", "3", "--json", "--domain", RIGHT).stdout)
        assert done.stdout.count(b"gw-1") == 4, "a node, the way to one beyond, and two sides"
        assert "0→1 by gw-1" in listed.stdout.decode()
        (topic,) = [one for one in far["topics"] if one["subject"] == "/t/only"]
        (subscriber,) = topic["far_subscribers"]
        assert (subscriber["path"], topic["far_publishers"]) == (["gw-1"], [])
        gateway.send_signal(signal.SIGINT)
        code, _, err = finish(gateway)
    assert code == 0, err
    assert "gw-1 joins left, right" in err
    assert "passed on to left: 0 messages" in err and "passed on to right: 1 message" in err


def test_check_says_what_cannot_work(tmp_path: Path) -> None:
    bus = Bus()
    path = tmp_path / "gateway.toml"
    path.write_text('[[side]]\nname = "a"\n[[side]]\nname = "b"\ndomain = "x"\n')
    done = bus.run("gateway", "--config", str(path), "--check")
    assert done.returncode == 0 and b"2 sides: a, b" in done.stderr
    done = bus.run("gateway", "--side", "name=a", "--side", "name=b", "--check")
    assert done.returncode == 2 and b"a and b are the same network" in done.stderr


def test_rodos_topics_are_subjects() -> None:
    bus = Bus()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as satellite:
        satellite.bind(("127.0.0.1", 0))
        satellite.settimeout(30)
        to = f"127.0.0.1:{satellite.getsockname()[1]}"
        options = ("--udp", f"127.0.0.1:0={to}", "--map", "1001=/sat/power", "--flood")
        with bus.start("gateway", "rodos", *options, "--node", "4711") as gateway:
            assert bus.run("pub", "/sat/power", "28 V", "-w", "1").returncode == 0
            while (datagram := satellite.recv(2000))[12:14] != b"\0\0":
                pass  # Lists of topics.
            gateway.send_signal(signal.SIGINT)
            code, _, err = finish(gateway)
    assert datagram[16:20] == (4711).to_bytes(4, "big") and datagram[36:] == b"28 V"
    assert code == 0 and "RODOS node 4711 at 127.0.0.1:" in err
    assert "0 messages from RODOS" in err


def test_rodos_map_that_is_none_is_refused() -> None:
    done = Bus().run("gateway", "rodos", "--udp", "50000", "--map", "power=/sat/power")
    assert done.returncode == 2 and b"write TOPICID=SUBJECT" in done.stderr
