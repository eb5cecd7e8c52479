import socket
from dataclasses import replace
from pathlib import Path

import pytest

from hubbub.cli import network_checks
from hubbub.cli.host_checks import (
    check_clock_source,
    check_environment,
    check_local_link,
    check_memfd,
    check_switch_interval,
    check_synchronisation,
    check_timer,
    judge_clock,
)
from hubbub.cli.network_checks import (
    check_buffer,
    check_interfaces,
    check_mtu,
    check_peers,
    check_state,
    check_tcp,
)
from hubbub.links.interfaces import Interface
from hubbub.links.multicast import SOCKET_BUFFER_BYTES

LOOPBACK = Interface("lo", 1, ("127.0.0.1",), (), 65536, True, True, False)
LAN = Interface("eth9", 2, ("192.0.2.9",), (), 1500, True, False, True)
SECOND_NS = 1_000_000_000


def test_small_buffer_is_mended_by_the_command_that_is_shown() -> None:
    finding = check_buffer("rmem", 212_992, 212_992)
    assert finding.state == "warn"
    assert f"sudo sysctl -w net.core.rmem_max={SOCKET_BUFFER_BYTES}" in finding.remedy
    assert check_buffer("rmem", SOCKET_BUFFER_BYTES, SOCKET_BUFFER_BYTES).state == "ok"


def test_privilege_to_exceed_the_limit_counts() -> None:
    assert check_buffer("wmem", 212_992, SOCKET_BUFFER_BYTES).state == "ok"


@pytest.mark.parametrize(
    ("interface", "state", "remedy"),
    [
        (LAN, "ok", ""),
        (LOOPBACK, "ok", ""),
        (replace(LAN, is_up=False), "bad", "sudo ip link set dev eth9 up"),
        (replace(LAN, is_multicast=False), "bad", "sudo ip link set dev eth9 multicast on"),
    ],
)
def test_state_of_an_interface(interface: Interface, state: str, remedy: str) -> None:
    finding = check_state(interface)
    assert (finding.state, finding.remedy) == (state, remedy)


def test_small_mtu_is_a_warning() -> None:
    assert check_mtu(LAN).state == "ok"
    assert "frames of 1472" in check_mtu(LAN).what
    assert check_mtu(replace(LAN, mtu=1000)).state == "warn"


def test_no_lan_is_a_warning_and_no_interface_is_bad() -> None:
    assert check_interfaces([LOOPBACK, replace(LAN, is_up=False)]).state == "warn"
    assert check_interfaces([]).state == "bad"


@pytest.mark.parametrize(
    ("apart_ns", "state", "word"),
    [
        (0, "ok", "agree"),
        (400_000, "ok", "agree"),
        (-600_000, "warn", "-600 ppm"),
        (2_000_000, "warn", "stepped by +2.0 ms"),
        (-3_600 * SECOND_NS, "warn", "stepped"),
    ],
)
def test_clock_that_drifts_or_steps_is_a_warning(apart_ns: int, state: str, word: str) -> None:
    finding = judge_clock(SECOND_NS + apart_ns, SECOND_NS)
    assert finding.state == state
    assert word in finding.what


def test_slow_clock_source_is_a_warning() -> None:
    assert [check_clock_source(one).state for one in ("tsc", "", "hpet")] == ["ok", "ok", "warn"]


def test_clock_that_nobody_keeps_in_step_is_a_warning() -> None:
    assert check_synchronisation(True).state == "ok"
    assert check_synchronisation(False).state == "warn"
    assert check_synchronisation(None).state == "ok"


def test_switch_interval_is_never_bad() -> None:
    assert "lowers it" in check_switch_interval(5).what
    assert "lowers it" not in check_switch_interval(0.5).what


def test_port_that_others_would_call_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(network_checks, "DEFAULT_PORT", taken.getsockname()[1])
        found = check_tcp("127.0.0.1")
        assert found.state == "warn" and "is taken" in found.what and "listen=" in found.remedy
    found = check_tcp("127.0.0.1")
    assert found.state == "ok" and f"127.0.0.1:{network_checks.DEFAULT_PORT}" in found.what
    assert check_tcp("nowhere0").state == "bad"


@pytest.mark.skipif(not hasattr(socket, "AF_NETLINK"), reason="these are features of Linux")
def test_linux_has_memfd_and_timerfd() -> None:
    assert [check_memfd().state, check_timer().state] == ["ok", "ok"]


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="these are features of Linux")
def test_directory_where_nodes_of_this_host_meet_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUBBUB_RUNTIME_DIR", str(tmp_path / "run"))
    found = check_local_link()
    assert found.state == "ok" and str(tmp_path / "run") in found.what
    (tmp_path / "run").chmod(0o777)
    found = check_local_link()
    assert found.state == "warn" and "0700" in found.what and "HUBBUB_RUNTIME_DIR" in found.remedy


def test_variable_that_nobody_reads_is_a_warning() -> None:
    assert check_environment([]).state == "ok"
    found = check_environment(["HUBBUB_DOMIAN"])
    assert found.state == "warn" and "HUBBUB_DOMIAN" in found.what


def test_peer_without_an_address_is_bad() -> None:
    assert check_peers(["127.0.0.1:7266", "localhost"]).state == "ok"
    found = check_peers(["nowhere.invalid:7266"])
    assert found.state == "bad" and "nowhere.invalid" in found.what


def test_interface_that_is_configured_is_the_one_that_a_node_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HUBBUB_INTERFACE", "127.0.0.1")
    assert "a node takes lo, as HUBBUB_INTERFACE says" in check_interfaces([LOOPBACK, LAN]).what
