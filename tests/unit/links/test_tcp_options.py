"""Who may connect by TCP: certificates that prove it, lists that allow it, and who is refused."""

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from hubbub.errors import ConfigurationError
from hubbub.limits import REFUSAL_INTERVAL
from hubbub.links.allowing import AllowList, Refusals
from hubbub.links.dialling import HostAndPort, Target
from hubbub.links.listening import ListenAt, open_listener
from hubbub.links.pipes import BACKLOG_BYTES_MAX
from hubbub.links.tcp import TcpLink
from hubbub.links.tcp_options import TcpOptions, make_tcp_options
from hubbub.protocol.burst import Pipes
from tests.certificates import Authority
from tests.unit.links.test_tcp import CHANNEL, DOMAIN, FRAME, HOST, A, B, meet, port_of, pump

PLAIN = TcpOptions()
Open = Callable[..., TcpLink]


@pytest.fixture
def open_link() -> Iterator[Open]:
    links: list[TcpLink] = []

    def open_one(key: bytes, options: TcpOptions, *peers: TcpLink) -> TcpLink:
        listener = open_listener(HOST, ListenAt(HOST, 0), 0)
        named = [HostAndPort(HOST, port_of(peer)) for peer in peers]
        links.append(
            TcpLink(
                key, DOMAIN, CHANNEL, listener.socket, named, Random(7), time.monotonic_ns,
                options=options,
            )
        )  # fmt: skip
        return links[-1]

    yield open_one
    for link in links:
        link.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def sound(authority: Authority) -> TcpOptions:
    return authority.options("plant-a")


def refused(open_link: Open, called: TcpOptions, calling: TcpOptions) -> str:
    """Let one call the other; return why who is called refuses."""
    one = open_link(A, called)
    other = open_link(B, calling, one)
    pump([one, other], lambda: one.refusals.count)
    return _why(one, other)


def _why(one: TcpLink, other: TcpLink) -> str:
    assert not one.opened and not other.opened
    assert one.statistics().refused == one.refusals.count
    return one.refusals.untold[0].reason


def both_refuse(open_link: Open, called: TcpOptions, calling: TcpOptions) -> tuple[str, str]:
    """Let one call the other, which tells why it refuses; return what each says."""
    one = open_link(A, called)
    other = open_link(B, calling, one)
    pump([one, other], lambda: one.refusals.count and other.refusals.count)
    return _why(one, other), _why(other, one)


def test_bursts_cross_sealed_and_whole(open_link: Open, sound: TcpOptions) -> None:
    one = open_link(A, sound)
    other = open_link(B, sound, one)
    meet(one, other)
    bursts = [bytes([number]) * 100_000 for number in range(20)]
    for burst in bursts:
        one.send(Pipes((B,)), [FRAME, memoryview(burst)], 0)
        other.send(Pipes((A,)), [burst], 0)
    received = pump(
        [one, other], lambda: one.statistics().packets_in == other.statistics().packets_in == 20
    )
    heard = {key: [data for data, _, source in received if source[0] == key] for key in (A, B)}
    assert heard == {A: [FRAME + burst for burst in bursts], B: bursts}


def test_nothing_can_be_read_on_the_way(open_link: Open, sound: TcpOptions) -> None:
    with socket.create_server((HOST, 0)) as tap:
        link = open_link(B, sound)
        link._dialler.targets.append(Target(HOST, tap.getsockname()[1]))
        pump([link], lambda: link._by_fileno)
        tapped, _ = tap.accept()
        with tapped:
            hello = tapped.recv(4096)
    assert hello.startswith(b"\x16\x03") and link._greeting not in hello


def test_what_a_full_pipe_does_not_take_is_dropped_before_it_is_sealed(
    open_link: Open, sound: TcpOptions
) -> None:
    one = open_link(A, sound)
    other = open_link(B, sound, one)
    meet(one, other)
    count = 0
    while not one.statistics().dropped:
        one.send(Pipes((B,)), [count.to_bytes(4, "big") * 15_000], 0)
        count += 1
    assert one.statistics().backlog_bytes <= BACKLOG_BYTES_MAX + 61_000
    received = pump([one, other], lambda: other.statistics().packets_in == count - 1)
    assert [int.from_bytes(data[:4], "big") for data, _, _ in received] == list(range(count - 1))
    one.send(Pipes((B,)), [FRAME], 0)
    assert [
        data for data, _, _ in pump([one, other], lambda: other.statistics().packets_in == count)
    ]


def test_certificate_that_has_expired_is_refused(
    open_link: Open, authority: Authority, sound: TcpOptions
) -> None:
    old = authority.options("old", days=-1)
    assert both_refuse(open_link, old, sound) == (
        "it says that our certificate has expired",
        "its certificate is refused: certificate has expired",
    )
    assert refused(open_link, sound, old) == "its certificate is refused: certificate has expired"


def test_certificate_of_another_name_is_refused(
    open_link: Open, authority: Authority, sound: TcpOptions
) -> None:
    elsewhere = authority.options("elsewhere", alternatives="IP:127.0.0.9")
    called, calling = both_refuse(open_link, elsewhere, sound)
    assert "IP address mismatch, certificate is not valid for '127.0.0.1'" in calling
    assert called == "it says that our certificate is not for our name"


def test_certificate_of_another_authority_is_refused(
    open_link: Open, authority: Authority, sound: TcpOptions
) -> None:
    foreign = Authority(authority.folder, "foreign").options("plant-a", trusts=authority)
    called, calling = both_refuse(open_link, foreign, sound)
    assert "unable to get local issuer certificate" in calling
    assert called == "it does not trust the authority of our certificate"
    assert "unable to get local issuer certificate" in refused(open_link, sound, foreign)


def test_who_speaks_without_tls_is_refused_and_so_is_who_insists_on_it(
    open_link: Open, sound: TcpOptions
) -> None:
    assert refused(open_link, sound, PLAIN) == "it speaks without TLS, or an old one"
    assert refused(open_link, PLAIN, sound) == "it speaks TLS, which is not asked for here"


def test_certificate_of_a_name_that_is_allowed_is_enough(
    open_link: Open, authority: Authority, sound: TcpOptions
) -> None:
    strict = authority.options("strict", allow=("plant-a", "10.0.0.0/8"))
    one = open_link(A, strict)
    meet(one, open_link(B, sound, one))
    other = authority.options("plant-b")
    assert refused(open_link, strict, other) == "its certificate of plant-b is not allowed"


def test_address_that_is_not_allowed_is_refused_at_once(open_link: Open) -> None:
    one = open_link(A, TcpOptions(allow=("127.0.0.0/8",)))
    meet(one, open_link(B, PLAIN, one))
    strict = TcpOptions(allow=("10.0.0.0/8",))
    assert refused(open_link, strict, PLAIN) == "its address is not allowed"


def test_list_of_networks_addresses_and_names() -> None:
    allowed = AllowList(["10.0.0.0/8", "192.168.1.7", "fd00::/8", "plant-a"])
    for host in ("10.255.0.1", "192.168.1.7", "fd00::1%eth0", "::ffff:10.0.0.1"):
        assert allowed.has_network(host)
    for host in ("11.0.0.1", "192.168.1.8", "fe80::1"):
        assert not allowed.has_network(host)
    assert allowed.has_name(frozenset({"x", "plant-a"}))
    assert not allowed.has_name(frozenset({"plant-b"}))
    assert AllowList([]).is_open and not allowed.is_open


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "10.0.0.0/33", "10.0.0.256", "plant/a"])
def test_network_that_is_none_is_refused(entry: str) -> None:
    with pytest.raises(ConfigurationError, match="allow: "):
        TcpOptions(allow=(entry,))


def test_same_refusal_is_told_now_and_then_and_always_counted() -> None:
    refusals = Refusals()
    for now in (0, 1, REFUSAL_INTERVAL - 1, REFUSAL_INTERVAL):
        refusals.note(now, "10.0.0.7", 4000 + now % 7, "its address is not allowed")
    refusals.note(1, "fd00::1", 7, "its address is not allowed")
    assert refusals.count == 5
    assert [one.address.rpartition(":")[0] for one in refusals.untold] == [
        "10.0.0.7", "10.0.0.7", "[fd00::1]",
    ]  # fmt: skip


def test_options_that_cannot_work_are_refused() -> None:
    for parts, fault in [
        ({"ca": "ca.pem"}, "certificate is missing: TLS needs ca, certificate and key"),
        ({"allow": ["plant-a"]}, "'plant-a' is a name, which only a certificate can prove"),
        ({"allow": "10.0.0.0/8"}, "is not a list of texts"),
        ({"key": 7}, "key=7 is no path"),
        ({"colour": "red"}, "tcp: colour is none of ca, certificate, key, allow"),
    ]:
        with pytest.raises(ConfigurationError, match=fault):
            make_tcp_options("tcp", parts)


def test_files_that_cannot_work_are_refused(tmp_path: Path, sound: TcpOptions) -> None:
    other = Authority(tmp_path).options("other")
    none, empty = str(tmp_path / "none.pem"), tmp_path / "empty.pem"
    empty.write_text("")
    for options, fault in [
        ((none, sound.certificate, sound.key), "ca=.*none.pem: no such file"),
        ((str(empty), sound.certificate, sound.key), "ca=.*empty.pem: this is no PEM file"),
        ((sound.ca, none, sound.key), "certificate=.*none.pem, .*: no such file"),
        ((sound.ca, sound.certificate, other.key), "the key is not that of the certificate"),
    ]:
        with pytest.raises(ConfigurationError, match=fault):
            TcpOptions(*options).make_tls()
