"""The multicast link on interfaces that come, go and change, each in a namespace of its own."""

import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hubbub.errors import LinkError
from hubbub.events import Event, LinkDown, LinkUp
from hubbub.links.interfaces import InterfaceWatch, choose
from hubbub.links.multicast import MulticastLink
from tests.integration.link_probe import (
    DEADLINE_S,
    burst,
    close,
    fresh_group,
    numbered,
    open_links,
    payloads,
    receive,
    take,
)
from tests.integration.namespace import ROOT, command, ip, run_scenario, skip, wait_for_cable

pytestmark = pytest.mark.netns

PORT = 7266
ETH_P_IP = 0x0800


def add_lan(name: str, *addresses: str) -> None:
    """Add an interface with a cable in it; nobody is at the other end."""
    # Duplicate address detection would keep IPv6 addresses from being used for a second or two.
    Path("/proc/sys/net/ipv6/conf/default/accept_dad").write_text("0")
    ip(f"link add {name} type veth peer name {name}-end")
    Path(f"/proc/sys/net/ipv6/conf/{name}-end/disable_ipv6").write_text("1")
    ip(f"link set {name}-end up")
    ip(f"link set {name} up")
    for address in addresses:
        ip(f"address add {address} dev {name}")
    wait_for_cable(name)


def talk(one: MulticastLink, two: MulticastLink, text: bytes = b"hello") -> None:
    """Show that both hear each other, in the group and directly."""
    assert one.send(burst(text))
    assert receive(two, 1) == [(text, one.address)]
    assert two.send(burst(text, to=one.address))
    assert receive(one, 1) == [(text, two.address)]
    assert two.send(burst(text))
    assert receive(one, 1) == [(text, two.address)]


def events_of(link: MulticastLink) -> list[Event]:
    """Wait until the link has something to tell: the kernel takes its time with carriers."""
    end = time.monotonic() + DEADLINE_S
    while not (events := link.poll_events(0)):
        assert time.monotonic() < end, f"no event within {DEADLINE_S} s"
        time.sleep(0.01)
    return events


def kinds_of(link: MulticastLink) -> list[type[Event]]:
    return [type(event) for event in events_of(link)]


def choose_the_lan() -> None:
    assert [one.name for one in choose(None)] == ["lo"]
    assert [one.name for one in choose("all")] == ["lo"]
    watch = InterfaceWatch()
    add_lan("lan0", "192.0.2.1/24")
    add_lan("lan1", "198.51.100.1/24")
    assert watch.has_changed()
    assert not watch.has_changed()
    watch.close()
    assert [one.name for one in choose(None)] == ["lan0"]
    ip("route add default via 198.51.100.9")
    assert [one.name for one in choose(None)] == ["lan1"]
    assert [one.name for one in choose("all")] == ["lan0", "lan1"]
    ip("link set lan1 down")
    assert [one.name for one in choose(None)] == ["lan0"]
    assert [one.name for one in choose("198.51.100.1")] == ["lan1"]


def test_the_lan_is_the_interface_of_the_default_route() -> None:
    run_scenario(choose_the_lan)


def down_and_up() -> None:
    add_lan("lan0", "192.0.2.1/24")
    one, two = open_links(2, interface="lan0")
    assert one.frame_bytes_max == 1472
    filenos = one.filenos()
    talk(one, two)
    assert one.poll_events(0) == two.poll_events(0) == []

    ip("link set lan0 down")
    assert one.send(burst(b"into the void"))
    assert events_of(one) == [LinkDown(one.channel, "lan0", "the interface is down")]
    assert one.poll_events(0) == []
    assert one.send(burst(b"again"))
    assert one.statistics().send_errors == 2

    ip("link set lan0 up")
    assert events_of(one) == [LinkUp(one.channel, "lan0")]
    assert one.poll_events(0) == []
    two.poll_events(0)
    assert one.filenos() == filenos
    talk(one, two)
    close(one, two)


def test_an_interface_that_goes_down_and_up_works_again() -> None:
    run_scenario(down_and_up)


def link_opened_while_down() -> None:
    add_lan("lan0", "192.0.2.1/24")
    ip("link set lan0 down")
    one, two = open_links(2, interface="lan0")

    assert kinds_of(one) == [LinkDown]
    ip("link set lan0 up")
    assert kinds_of(one) == [LinkUp]
    talk(one, two)
    close(one, two)


def test_a_link_opened_while_the_interface_is_down_comes_up() -> None:
    run_scenario(link_opened_while_down)


def another_address() -> None:
    add_lan("lan0", "192.0.2.1/24")
    one, two = open_links(2, interface="lan0")
    talk(one, two)
    before, filenos = one.address, one.filenos()

    ip("address del 192.0.2.1/24 dev lan0")
    assert kinds_of(one) == [LinkDown]
    ip("address add 192.0.2.77/24 dev lan0")
    assert kinds_of(one) == [LinkUp]
    assert kinds_of(two) == [LinkDown, LinkUp]

    assert one.address == ("192.0.2.77", before[1])
    assert not set(one.filenos()) & set(filenos)
    talk(one, two)
    assert one.send(burst(b"mine"))
    assert take(one) == []
    assert one.statistics().receive_errors == 0
    close(one, two)


def test_an_address_that_changes_is_followed() -> None:
    run_scenario(another_address)


def removed_and_made_again() -> None:
    add_lan("lan0", "192.0.2.1/24")
    one, two = open_links(2, interface="lan0")

    ip("link del lan0")
    assert events_of(one) == [LinkDown(one.channel, "lan0", "the interface is gone")]
    assert kinds_of(two) == [LinkDown]
    assert one.send(burst(b"nowhere"))
    add_lan("lan0", "192.0.2.1/24")

    assert kinds_of(one) == kinds_of(two) == [LinkUp]
    talk(one, two)
    close(one, two)


def test_an_interface_that_is_removed_and_made_again_is_joined_again() -> None:
    run_scenario(removed_and_made_again)


def unplugged() -> None:
    # One report a change is enough: the repetition of an earlier one would prove nothing.
    Path("/proc/sys/net/ipv4/igmp_qrv").write_text("1")
    add_lan("lan0", "192.0.2.1/24")
    with switch_at("lan0-end") as switch:
        (link,) = open_links(1, interface="lan0")
        await_membership_report(switch, link.group)

    ip("link set lan0-end down")
    assert kinds_of(link) == [LinkDown]
    ip("link set lan0-end up")
    with switch_at("lan0-end") as switch:
        assert kinds_of(link) == [LinkUp]
        await_membership_report(switch, link.group)
    close(link)


def switch_at(interface: str) -> socket.socket:
    """See what a switch sees at the other end of the cable."""
    switch = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IP))
    switch.bind((interface, ETH_P_IP))
    switch.settimeout(DEADLINE_S)
    return switch


def await_membership_report(switch: socket.socket, group: str) -> None:
    """Wait until the switch knows that somebody is in the group."""
    packet = switch.recv(2048)
    while packet[9] != socket.IPPROTO_IGMP or socket.inet_aton(group) not in packet:
        packet = switch.recv(2048)


def test_a_cable_pulled_out_is_a_link_down_and_put_back_the_switch_hears_of_us() -> None:
    run_scenario(unplugged)


def several_interfaces() -> None:
    add_lan("lan0", "192.0.2.1/24")
    add_lan("lan1", "198.51.100.1/24")
    both, first, second = (
        MulticastLink("239.255.72.1", PORT, interface=name) for name in ("all", "lan0", "lan1")
    )
    assert [one.name for one in both.interfaces] == ["lan0", "lan1"]
    assert len(both.filenos()) == 4

    assert both.send(burst(*numbered(3)))
    for link, host in ((first, "192.0.2.1"), (second, "198.51.100.1")):
        frames = receive(link, 3)
        assert payloads(frames) == numbered(3)
        assert {source[0] for _, source in frames} == {host}
        assert take(link) == []
    assert take(both) == []

    assert second.send(burst(b"question"))
    ((_, source),) = receive(both, 1)
    assert both.send(burst(b"answer", to=source))
    assert receive(second, 1) == [(b"answer", ("198.51.100.1", both._pairs[1].address[1]))]

    ip("link set lan0 down")
    assert events_of(both) == [LinkDown(both.channel, "lan0", "the interface is down")]
    assert both.send(burst(b"still here"))
    assert payloads(receive(second, 1)) == [b"still here"]
    close(both, first, second)


def test_all_interfaces_are_served_and_answers_leave_where_the_question_came_in() -> None:
    run_scenario(several_interfaces)


def smaller_mtu() -> None:
    add_lan("lan0", "192.0.2.1/24")
    one, two = open_links(2, interface="lan0")
    frames = numbered(20, 1472)
    assert one.send(burst(*frames))
    assert payloads(receive(two, 20)) == frames
    assert one.statistics().segmentation_refused == 0

    ip("link set lan0 mtu 1000")
    assert one.send(burst(*frames))

    assert payloads(receive(two, 20)) == frames
    assert one.statistics().segmentation_refused == 1
    assert one.statistics().send_errors == 0
    close(one, two)


def test_frames_above_an_mtu_that_shrank_arrive_although_not_in_bursts() -> None:
    run_scenario(smaller_mtu)


def slow_interface(gso: bool) -> None:
    add_lan("lan0", "192.0.2.1/24")
    tc = shutil.which("tc") or shutil.which("tc", path="/usr/sbin:/sbin")  # Not for all to find.
    if tc is None:
        skip("no command tc, which iproute2 has")
    shaping = "qdisc add dev lan0 root tbf rate 40mbit burst 10kb latency 10s"
    if subprocess.run([tc, *shaping.split()], check=False, capture_output=True).returncode:
        skip("no token bucket filter in this kernel")
    one, two = open_links(2, interface="lan0", send_buffer_bytes=20_000, gso=gso)

    for start in range(0, 400, 20):
        offered = burst(*numbered(20, 1472, start))
        while not one.send(offered):
            assert select.select([], [one.writable_fileno()], [], DEADLINE_S)[1]

    assert payloads(receive(two, 400)) == numbered(400, 1472)
    assert one.statistics().would_block > 0
    close(one, two)


def slow_interface_in_bursts() -> None:
    slow_interface(gso=True)


def slow_interface_frame_by_frame() -> None:
    slow_interface(gso=False)


@pytest.mark.parametrize("scenario", [slow_interface_in_bursts, slow_interface_frame_by_frame])
def test_an_interface_without_room_takes_everything_once_in_the_end(
    scenario: Callable[[], None],
) -> None:
    run_scenario(scenario)


def ipv6_on_loopback() -> None:
    with pytest.raises(LinkError, match="ip -6 route add local ff00::/8 dev lo table local"):
        MulticastLink("ff02::7266", PORT, interface="::1")
    ip("-6 route add local ff00::/8 dev lo table local")
    one, two = open_links(2, group="ff02::7266", interface="::1")

    talk(one, two)
    assert one.send(burst(*numbered(40, 1400)))
    assert payloads(receive(two, 40)) == numbered(40, 1400)
    assert take(one) == []
    assert one.address_text == f"[::1]:{one.address[1]}"
    if one.statistics().is_segmenting:
        count = one.burst_bytes_max // 1400
        assert one.send(burst(*numbered(count, 1400)))
        assert len(two.receive()) == 1
    close(one, two)


def test_ipv6_works_on_loopback_where_there_is_a_route() -> None:
    run_scenario(ipv6_on_loopback)


def ipv6_on_a_lan() -> None:
    add_lan("lan0", "fd00:72::1/64")
    near, near_too = open_links(2, group="ff02::7266", interface="lan0")
    far, far_too = open_links(2, group="ff05::7266", interface="lan0")
    other = MulticastLink("ff02::7267", near.port, interface="lan0")

    assert near.frame_bytes_max == 1452
    assert near.address[0].startswith("fe80::")
    assert far.address[0] == "fd00:72::1"
    talk(near, near_too)
    talk(far, far_too)
    assert take(other) == []
    ip("link set lan0 down")
    assert kinds_of(near) == kinds_of(near_too) == [LinkDown]
    ip("link set lan0 up")
    assert kinds_of(near) == kinds_of(near_too) == [LinkUp]
    talk(near, near_too)
    close(near, near_too, far, far_too, other)


def test_ipv6_on_a_lan_uses_the_address_of_the_groups_reach() -> None:
    run_scenario(ipv6_on_a_lan)


def no_address_of_the_family() -> None:
    add_lan("lan0")
    with pytest.raises(LinkError, match=r"lan0 .* has no IPv4 address"):
        MulticastLink(fresh_group(), PORT, interface="lan0")


def test_an_interface_without_an_address_of_the_groups_family_is_refused() -> None:
    run_scenario(no_address_of_the_family)


def echo_over_veth() -> None:
    """The far end of a cable: say that it is there, then send back to the group what comes."""
    sys.stdout.write("waiting\n")
    sys.stdout.flush()
    sys.stdin.readline()
    ip("link set far0 up")
    ip("address add 192.0.2.2/24 dev far0")
    link = MulticastLink("239.255.72.2", PORT, interface="far0")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    frames = receive(link, 200)
    assert link.send(burst(*payloads(frames)[:40]))
    assert link.send(burst(b"got them", to=frames[0][1]))
    close(link)


def two_hosts() -> None:
    far = subprocess.Popen(
        command(echo_over_veth),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert far.stdin is not None
    assert far.stdout is not None
    assert far.stdout.readline() == "waiting\n"
    ip(f"link add near0 type veth peer name far0 netns {far.pid}")
    ip("link set near0 up")
    ip("address add 192.0.2.1/24 dev near0")
    far.stdin.write("go\n")
    far.stdin.flush()
    assert far.stdout.readline() == "ready\n"
    wait_for_cable("near0")
    link = MulticastLink("239.255.72.2", PORT, interface="near0")
    assert link.frame_bytes_max == 1472

    for start in range(0, 200, 40):
        assert link.send(burst(*numbered(40, 1472, start)))

    frames = receive(link, 41)
    assert sorted(payloads(frames)) == sorted([*numbered(40, 1472), b"got them"])
    assert {source[0] for _, source in frames} == {"192.0.2.2"}
    assert far.wait(timeout=10) == 0
    close(link)


def test_two_hosts_on_a_cable_exchange_bursts() -> None:
    run_scenario(two_hosts)


def test_scenarios_do_not_touch_the_hosts_interfaces() -> None:
    names = {name for _, name in socket.if_nameindex()}
    run_scenario(down_and_up)
    assert {name for _, name in socket.if_nameindex()} == names
