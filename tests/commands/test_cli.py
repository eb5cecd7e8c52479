"""The commands as a user runs them: real processes on loopback, each test in its own domain."""

import base64
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import hubbub
from tests import processes
from tests.integration.bus import wait_until
from tests.integration.namespace import ip, run_scenario
from tests.processes import Process

TIMEOUT_S = 60
COMMAND = ["-m", "hubbub.cli.main"]
IMPORTS = ("hubbub.cli.app",)  # What the command imports before it looks at its arguments.


class Bus:
    """Run commands in one domain."""

    def __init__(self) -> None:
        kept = {name: value for name, value in os.environ.items() if "HUBBUB" not in name}
        self.environment = {
            **kept,
            "HUBBUB_INTERFACE": "127.0.0.1",
            "HUBBUB_DOMAIN": f"test-{secrets.token_hex(8)}",
        }

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return processes.run(
            [*COMMAND, *arguments], imports=IMPORTS, env=self.environment, input=stdin,
            timeout=TIMEOUT_S,
        )  # fmt: skip

    def process(self, *arguments: str, **options: Any) -> Process:
        return Process([*COMMAND, *arguments], imports=IMPORTS, env=self.environment, **options)

    @contextmanager
    def start(self, *arguments: str) -> Iterator[Process]:
        process = self.process(*arguments)
        try:
            yield process
        finally:
            process.kill()
            process.__exit__()


@pytest.fixture
def bus() -> Bus:
    return Bus()


def finish(process: Process) -> tuple[int, bytes, str]:
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err.decode()


def one_line(err: bytes) -> str:
    text = err.decode()
    assert text.startswith("hubbub: ") and text.count("\n") == 1, text
    return text


# Publishing and subscribing.


def test_message_is_shown_as_a_readable_line(bus: Bus) -> None:
    with bus.start("sub", "/plant/...", "-n", "2") as subscriber:
        sent = bus.run("pub", "/plant/line1/temp", "21 °C", "-n", "2", "-w", "1")
        code, out, err = finish(subscriber)
    assert (code, err, sent.returncode) == (0, "", 0)
    lines = out.decode().splitlines()
    assert len(lines) == 2
    assert all(" /plant/line1/temp " in line and line.endswith(" 6 B  21 °C") for line in lines)
    assert "2 messages, 12 B to 1 receiver in" in one_line(sent.stderr)


def test_every_line_of_stdin_is_a_message(bus: Bus) -> None:
    with bus.start("sub", "/a", "/b/*", "-n", "3", "--json") as subscriber:
        sent = bus.run("pub", "/a", "--stdin", "-w", "1", "--json", stdin=b"one\n\nth\xffree")
        code, out, _ = finish(subscriber)
    told = json.loads(sent.stdout)
    assert (told["messages"], told["bytes"], told["receivers"]) == (3, 9, 1)
    assert told["is_confirmed"]
    messages = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [one["sequence"] for one in messages] == [1, 2, 3]
    assert [one["payload"] for one in messages[:2]] == ["one", ""]
    assert messages[2]["encoding"] == "base64"
    assert base64.b64decode(messages[2]["payload"]) == b"th\xffree"


def test_stdin_arrives_byte_for_byte(bus: Bus) -> None:
    payload = secrets.token_bytes(300_000)
    with bus.start("sub", "/file", "-n", "1", "--raw") as subscriber:
        assert bus.run("pub", "/file", "-w", "1", stdin=payload).returncode == 0
        code, out, _ = finish(subscriber)
    assert (code, out == payload) == (0, True)


def test_made_up_messages_have_the_size_asked_for(bus: Bus) -> None:
    with bus.start("sub", "/s", "-n", "3", "--raw") as subscriber:
        bus.run("pub", "/s", "--size", "1000", "-n", "3", "-r", "200", "-w", "1")
        assert len(finish(subscriber)[1]) == 3000


def test_publisher_without_subscribers_says_so(bus: Bus) -> None:
    sent = bus.run("pub", "/nobody", "x")
    assert sent.returncode == 0
    assert "nobody subscribes to /nobody, nothing was sent" in one_line(sent.stderr)


def test_subscribers_that_do_not_come_end_the_wait(bus: Bus) -> None:
    sent = bus.run("pub", "/nobody", "x", "-w", "2", "--timeout", "0.2")
    assert sent.returncode == 1
    assert "0 of 2 subscribers" in one_line(sent.stderr)


def test_escape_codes_never_reach_the_terminal(bus: Bus) -> None:
    with bus.start("sub", "/evil", "-n", "1") as subscriber:
        bus.run("pub", "/evil", "-w", "1", stdin=b"\x1b[2J\xc2\x9b2J\x07")
        _, out, _ = finish(subscriber)
    assert out.count(b"\n") == 1
    assert out.decode()[:-1].isprintable()


def test_nothing_in_time_is_exit_code_1(bus: Bus) -> None:
    assert bus.run("sub", "/silence", "--timeout", "0.2").returncode == 1


def test_too_few_in_time_is_exit_code_1(bus: Bus) -> None:
    with bus.start("sub", "/few", "-n", "5", "--timeout", "5") as subscriber:
        bus.run("pub", "/few", "x", "-n", "2", "-w", "1")
        code, out, _ = finish(subscriber)
    assert (code, out.count(b"\n")) == (1, 2)


def test_enough_before_the_silence_is_exit_code_0(bus: Bus) -> None:
    with bus.start("sub", "/some", "--timeout", "5") as subscriber:
        bus.run("pub", "/some", "x", "-w", "1")
        assert finish(subscriber)[0] == 0


def test_lost_messages_are_told_and_make_exit_code_3(bus: Bus) -> None:
    # Nobody reads the pipe, so the subscriber blocks when it is full, and its queue overflows.
    with bus.start("sub", "/flood", "--queue", "10", "--timeout", "6") as subscriber:
        bus.run("pub", "/flood", "--size", "1000", "-n", "20000", "-w", "1")
        code, out, err = finish(subscriber)
    assert code == 3
    assert "slow consumer: /flood (drop_oldest) dropped" in err
    assert f"{20_000 - out.count(b'/flood'):,} messages lost" in err


def test_events_tell_who_comes_and_goes(bus: Bus) -> None:
    with bus.start("sub", "/e", "-n", "1", "--events") as subscriber:
        bus.run("pub", "/e", "x", "-w", "1")
        assert "peer joined: " in finish(subscriber)[2]


def test_reader_that_has_enough_ends_the_subscriber_in_silence(bus: Bus) -> None:
    with bus.start("sub", "/pipe") as subscriber:
        bus.run("pub", "/pipe", "x", "-w", "1")
        assert subscriber.stdout is not None and subscriber.stderr is not None
        assert subscriber.stdout.readline()
        subscriber.stdout.close()
        # Nothing more is published: the subscriber has to notice by itself.
        assert subscriber.wait(TIMEOUT_S) == 141
        assert subscriber.stderr.read() == b""


def test_disk_that_is_full_is_one_line_and_exit_code_2(bus: Bus) -> None:
    with open("/dev/full", "wb") as full:
        subscriber = bus.process("sub", "/full", "-n", "1", stdout=full)
    bus.run("pub", "/full", "x", "-w", "1")
    _, err = subscriber.communicate(timeout=TIMEOUT_S)
    assert (subscriber.returncode, one_line(err)) == (
        2, "hubbub: cannot write: No space left on device\n",
    )  # fmt: skip


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["sub", "--help"], []], ids=str)
def test_help_onto_a_full_disk_is_one_line_and_exit_code_2(bus: Bus, words: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        command = bus.process(*words, stdout=full)
    _, err = command.communicate(timeout=TIMEOUT_S)
    assert command.returncode == 2
    assert one_line(err) == "hubbub: cannot write: No space left on device\n"


def test_receiver_that_was_killed_is_not_counted_as_served(bus: Bus) -> None:
    with (
        bus.start("sub", "/doomed") as subscriber,
        bus.start("pub", "/doomed", "x", "-r", "1000", "-w", "1", "--json") as publisher,
    ):
        assert subscriber.stdout is not None and subscriber.stdout.readline()
        subscriber.kill()
        subscriber.wait()
        time.sleep(0.2)
        publisher.send_signal(signal.SIGINT)
        code, out, err = finish(publisher)
    assert (code, json.loads(out)["is_confirmed"]) == (130, False)
    assert "not every receiver confirmed everything" in err


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "sigterm"]
)
def test_interrupted_subscriber_ends_cleanly_with_what_it_had(
    bus: Bus, number: signal.Signals, code: int
) -> None:
    with bus.start("sub", "/long") as subscriber:
        bus.run("pub", "/long", "x", "-n", "10", "-w", "1")
        assert subscriber.stdout is not None
        assert all(subscriber.stdout.readline() for _ in range(10))
        subscriber.send_signal(number)
        assert finish(subscriber) == (code, b"", "")


def test_publisher_that_nobody_hears_says_so_meanwhile_and_once(bus: Bus) -> None:
    with bus.start("pub", "/lonely", "x", "-r", "50") as publisher:
        assert publisher.stderr is not None
        assert publisher.stderr.readline() == b"hubbub: nobody subscribes to /lonely yet\n"
        publisher.send_signal(signal.SIGINT)
        code, _, err = finish(publisher)
    assert (code, err.count("yet")) == (130, 0)


def test_interrupted_publisher_flushes_and_reports(bus: Bus) -> None:
    with (
        bus.start("sub", "/long", "--raw", "--timeout", "5") as subscriber,
        bus.start("pub", "/long", "x", "-r", "500", "-w", "1", "--json") as publisher,
    ):
        assert subscriber.stdout is not None
        assert subscriber.stdout.read(100)
        publisher.send_signal(signal.SIGINT)
        code, out, err = finish(publisher)
        received = 100 + len(finish(subscriber)[1])
    assert (code, err) == (130, "")
    told = json.loads(out)
    assert (told["messages"], told["is_confirmed"]) == (received, True)


# Errors.


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["pub", "/a/*", "x"], "wildcard"),
        (["sub", "//"], "level"),
        (["sub", "/a", "--interface", "nope0"], "this machine has: lo"),
        (["sub", "/a", "--log", "nonsense"], "choose of all"),
        (["doctor", "--interface", "nope0"], "this machine has: lo"),
        (["bench", "latency", "--interface", "nope0"], "this machine has: lo"),
        (["simulate", "--scenario", "randm_loss"], "did you mean random_loss"),
        (["simulate", "--scenario", "nope"], "--list` names all"),
        (["simulate", "--seeds", "9:3"], "write A:B"),
    ],
)
def test_error_is_one_line_and_exit_code_2(bus: Bus, arguments: list[str], text: str) -> None:
    ended = bus.run(*arguments)
    assert ended.returncode == 2
    assert text in one_line(ended.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ["pub", "/a", "x", "--stdin"],
        ["pub", "/a", "-n", "0"],
        ["sub", "/a", "--json", "--raw"],
        ["bench", "throughput", "--link", "pigeon"],
        ["bench", "nonsense"],
    ],
)
def test_wrong_usage_says_so_without_a_traceback(bus: Bus, arguments: list[str]) -> None:
    ended = bus.run(*arguments)
    assert ended.returncode == 2
    assert "--help`" in one_line(ended.stderr)


# Benchmarks.

FIELDS = {
    *("link", "size", "messages_per_second", "megabytes_per_second", "p50_us", "p99_us", "sent"),
    *("received", "lost", "duplicates", "repairs", "naks", "cpu_seconds", "latency_kind"),
}


@pytest.mark.parametrize("mode", ["inline", "receive"])
def test_throughput_with_loss_loses_nothing(bus: Bus, mode: str) -> None:
    options = ["--subscribers", "2", "--loss", "0.1", "--seconds", "0.5", "--rate", "20000"]
    ended = bus.run("bench", "throughput", "--json", "--mode", mode, *options)
    assert ended.returncode == 0, ended
    result = json.loads(ended.stdout)
    assert result.keys() >= FIELDS
    assert (result["link"], result["size"], result["lost"]) == ("multicast", 64, 0)
    assert result["received"] == 2 * result["sent"] > 0
    assert result["repairs"] > 0 and result["naks"] > 0 and result["duplicates"] == 0
    assert 0 < result["p50_us"] <= result["p99_us"] <= result["max_us"]
    assert result["messages_per_second"] > 0 and result["cpu_seconds"] > 0
    megabytes = result["messages_per_second"] * result["size"] / 1e6
    assert result["megabytes_per_second"] == pytest.approx(megabytes, abs=0.001)


@pytest.mark.parametrize("options", [[], ["--mode", "receive"], ["--rate", "200"]])
def test_latency_is_of_round_trips(bus: Bus, options: list[str]) -> None:
    ended = bus.run("bench", "latency", "--json", "--seconds", "0.5", "--size", "100", *options)
    assert ended.returncode == 0, ended
    result = json.loads(ended.stdout)
    assert result.keys() >= FIELDS
    assert result["latency_kind"] == "round trip"
    assert result["received"] == result["sent"] > 0
    assert 0 < result["p50_us"] <= result["p99_us"]


@pytest.mark.parametrize("benchmark", ["throughput", "latency"])
def test_benchmark_goes_by_tcp(bus: Bus, benchmark: str) -> None:
    options = ["--link", "tcp", "--seconds", "0.3", "--rate", "2000", "--subscribers", "2"]
    ended = bus.run("bench", benchmark, "--json", *options)
    assert ended.returncode == 0, ended
    result = json.loads(ended.stdout)
    assert (result["link"], result["lost"]) == ("tcp", 0) and result["sent"] > 0
    ended = bus.run("bench", benchmark, "--link", "tcp", "--loss", "0.1")
    assert ended.returncode == 2 and b"only multicast and datagram lose frames" in ended.stderr


def test_benchmark_by_datagram_tells_what_was_lost(bus: Bus) -> None:
    options = ("--link", "datagram", "--seconds", "1", "--rate", "500", "--subscribers", "2")
    ended = bus.run("bench", "throughput", "--json", "--loss", "0.2", *options)
    assert ended.returncode == 0, "what is lost of best effort is no failure"
    result = json.loads(ended.stdout)
    assert result["link"] == "datagram" and 0 < result["lost"] < result["sent"]
    assert result["losses"]["not repaired"] > 0
    assert result["repairs"] == result["naks"] == result["duplicates"] == 0
    ended = bus.run("bench", "latency", "--json", "--link", "datagram", "--seconds", "0.3")
    assert ended.returncode == 0 and json.loads(ended.stdout)["received"] > 0


@pytest.mark.parametrize("is_option", [True, False])
def test_commands_connect_to_peers_that_are_named(bus: Bus, is_option: bool) -> None:
    bus.environment["HUBBUB_LINKS"] = "tcp"
    with hubbub.open(
        "named", domain=bus.environment["HUBBUB_DOMAIN"], interface="127.0.0.1", links=["tcp"],
        listen=0,
    ) as node:  # fmt: skip
        tcp = node.statistics().channels[0].tcp
        assert tcp is not None
        options = ["--peers", f"127.0.0.1:1,{tcp.address}"] if is_option else []
        if not is_option:
            bus.environment["HUBBUB_PEERS"] = tcp.address
        ended = bus.run("ps", "--json", "--wait", "1", *options)
        [found] = json.loads(ended.stdout)["nodes"]
        assert (found["name"], found["link"], found["address"]) == ("named", "tcp", tcp.address)
        subscription = node.subscribe("/x")
        listed = bus.run("ls", "--json", "--wait", "1", *options)
        assert b'"/x"' in listed.stdout, listed
        assert bus.run("pub", "/x", "21.5", "-w", "1", *options).returncode == 0
        message = subscription.receive(TIMEOUT_S)
        assert message is not None and (message.payload, message.link) == (b"21.5", "tcp")
    ended = bus.run("pub", "/x", "21.5", "--peers", "host:port")
    assert ended.returncode == 2 and "peers='host:port'" in one_line(ended.stderr)


@pytest.mark.parametrize("mode", ["inline", "receive"])
@pytest.mark.parametrize("benchmark", ["throughput", "latency"])
def test_benchmark_within_one_process(bus: Bus, benchmark: str, mode: str) -> None:
    options = ["--link", "inproc", "--mode", mode, "--seconds", "0.3", "--subscribers", "2"]
    ended = bus.run("bench", benchmark, "--json", *options)
    assert ended.returncode == 0, ended
    result = json.loads(ended.stdout)
    assert (result["link"], result["lost"], result["duplicates"]) == ("inproc", 0, 0)
    subscribers = 2 if benchmark == "throughput" else 1
    assert result["received"] == subscribers * result["sent"] > 0
    assert 0 < result["p50_us"] <= result["p99_us"]


@pytest.mark.parametrize("link", ["inproc", "local"])
def test_only_multicast_and_datagram_lose_on_purpose(bus: Bus, link: str) -> None:
    ended = bus.run("bench", "latency", "--link", link, "--loss", "0.1")
    assert ended.returncode == 2 and b"only multicast and datagram lose frames" in ended.stderr


def test_interrupted_benchmark_within_one_process_ends(bus: Bus) -> None:
    with bus.start("bench", "throughput", "--seconds", "50", "--link", "inproc") as command:
        wait_until(lambda: len(threads(command.pid)) > 2)
        command.send_signal(signal.SIGINT)
        assert command.wait(TIMEOUT_S) == 130


def threads(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def test_benchmark_is_a_table_for_people(bus: Bus) -> None:
    ended = bus.run("bench", "throughput", "--seconds", "0.2", "--rate", "1000")
    assert ended.returncode == 0, ended
    assert b"\nmessages/s " in ended.stdout
    assert b"\nlost, duplicates     0, 0\n" in ended.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ended_benchmark_leaves_no_process_behind(bus: Bus, number: signal.Signals) -> None:
    with bus.start("bench", "throughput", "--seconds", "50", "--subscribers", "2") as command:
        wait_until(lambda: len(children(command.pid)) == 3)
        workers = children(command.pid)
        command.send_signal(number)
        assert command.wait(TIMEOUT_S) == {2: 130, 15: 143, 9: -9}[number]
        wait_until(lambda: not any(is_running(pid) for pid in workers))


def children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # An orphan that ended is gone as soon as init has looked.


# Simulation and diagnosis.


def test_simulation_runs_the_seeds_asked_for(bus: Bus) -> None:
    options = ["--scenario", "random_loss", "--scenario", "tail_loss", "--seeds", "3:5"]
    ended = bus.run("simulate", "--json", "--jobs", "2", *options)
    result = json.loads(ended.stdout)
    assert (result["runs"], list(result["scenarios"])) == (4, ["random_loss", "tail_loss"])
    assert ended.returncode == (1 if result["failed"] else 0)


def test_simulation_shows_a_table(bus: Bus) -> None:
    ended = bus.run("simulate", "--scenario", "random_loss", "--seeds", "0:2")
    assert b"random_loss" in ended.stdout
    assert b"2 runs of seeds 0:2: " in ended.stdout


def test_scenarios_are_listed_with_what_they_show(bus: Bus) -> None:
    known = json.loads(bus.run("simulate", "--list", "--json").stdout)
    assert known["random_loss"]
    assert bus.run("simulate", "--list").stdout.decode().count("\n") == len(known)


def test_interrupted_simulation_tells_what_was_done(bus: Bus) -> None:
    with bus.start("simulate", "--seeds", "0:100000", "--jobs", "2", "--json") as command:
        wait_until(lambda: len(children(command.pid)) >= 2)
        workers = children(command.pid)
        command.send_signal(signal.SIGINT)
        code, out, err = finish(command)
    assert (code, err) == (130, "")
    assert json.loads(out)["is_interrupted"]
    assert not any(is_running(pid) for pid in workers)


def test_doctor_sees_that_loopback_works(bus: Bus) -> None:
    ended = bus.run("doctor", "--json")
    told = json.loads(ended.stdout)
    found = {one["name"]: one for one in told["findings"]}
    assert (ended.returncode, told["ok"]) == (0, True)
    assert found["lo multicast"]["state"] == found["bus"]["state"] == "ok"
    assert all(one["remedy"] for one in told["findings"] if one["state"] != "ok")
    assert {"python", "memfd", "timerfd", "clock", "receive buffer", "segmentation"} <= set(found)


@pytest.mark.parametrize("command", ["doctor", "bench latency --seconds 0.1", "pub /a x"])
def test_log_is_written_to_stderr(bus: Bus, command: str) -> None:
    ended = bus.run(*command.split(), "--log", "connection")
    assert ended.returncode == 0
    assert b" hubbub.connection joined 239.255.72.66:7266 on lo" in ended.stderr


def test_doctor_says_it_to_people(bus: Bus) -> None:
    ended = bus.run("doctor")
    assert ended.returncode == 0
    assert b"\nok    lo multicast " in ended.stdout


def examine_an_interface_that_is_down() -> None:
    ip("link add dead type veth peer name dead-end")
    command = [sys.executable, *COMMAND, "doctor", "--json", "--interface", "dead"]
    ended = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
    told = json.loads(ended.stdout)
    assert (ended.returncode, told["ok"]) == (1, False)
    [state] = [one for one in told["findings"] if one["name"] == "dead state"]
    assert state["state"] == "bad" and state["remedy"] == "sudo ip link set dev dead up"


@pytest.mark.netns
def test_doctor_says_how_to_mend_what_is_bad_and_exits_with_1() -> None:
    run_scenario(examine_an_interface_that_is_down)


# The command itself.


def test_package_is_the_command(bus: Bus) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "hubbub", "--version"], capture_output=True, check=True
    )
    assert run.stdout == bus.run("--version").stdout != b""


def test_version_is_that_of_the_package(bus: Bus) -> None:
    from importlib.metadata import version

    assert bus.run("--version").stdout.decode() == f"hubbub {version('hubbub')}\n"


HELP = """
import sys
from hubbub.cli.main import main
for command in sys.argv[1:]:
    sys.argv = ["hubbub", command, "--help"]
    try:
        main()
    except SystemExit as end:
        loaded = {"rich", "hubbub.simulation"} & sys.modules.keys()
        print(end.code, loaded or "", end="\\0")
"""


def test_every_command_has_help_without_loading_what_only_its_work_needs(bus: Bus) -> None:
    commands = ["pub", "sub", "hz", "bw", "delay", "ps", "bench", "simulate", "doctor"]
    ended = subprocess.run(
        [sys.executable, "-c", HELP, *commands], env=bus.environment, capture_output=True,
        text=True, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    for command, text in zip(commands, ended.stdout.split("\0")[:-1], strict=True):
        assert text.startswith(f"Usage: hubbub {command}")
        assert text.splitlines()[-1] == "0 "


def test_typed_messages_are_printed_as_what_they_hold(bus: Bus) -> None:
    with (
        hubbub.open(domain=bus.environment["HUBBUB_DOMAIN"], interface="127.0.0.1") as node,
        bus.start("sub", "/x", "-n", "1") as reader,
    ):
        publisher = node.publisher("/x", type=dict[str, float])
        assert publisher.wait_for_subscribers(1, TIMEOUT_S)
        publisher.publish({"celsius": 21.5})
        code, out, _ = finish(reader)
    assert code == 0 and b'{"celsius":21.5}' in out


def test_subscriber_that_hears_nothing_says_so_and_what_may_be_wrong(bus: Bus) -> None:
    ended = bus.run("sub", "/x/**", "--timeout", "1.6")
    assert ended.returncode == 1
    assert "nothing yet on /x/** (nobody else on the bus); /x/**: * alone" in one_line(ended.stderr)


def test_peer_whose_name_has_no_address_is_told(bus: Bus) -> None:
    ended = bus.run("sub", "/x", "--timeout", "0.9", "--peers", "nowhere.invalid")
    assert "nowhere.invalid has no address" in one_line(ended.stderr)
