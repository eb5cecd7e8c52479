"""The multicast link on real sockets, on loopback."""

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hubbub.errors import ConfigurationError, LinkError
from hubbub.events import LinkUp
from hubbub.limits import MS
from hubbub.links import bpf, inlet
from hubbub.links.faults import Faults
from hubbub.links.interfaces import InterfaceWatch, interfaces
from hubbub.links.multicast import MulticastLink
from hubbub.links.opening import window_bytes
from tests.integration.bus import descriptors
from tests.integration.link_probe import (
    DEADLINE_S,
    burst,
    close,
    free_port,
    fresh_group,
    numbered,
    open_links,
    payloads,
    receive,
    take,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="measured facts about Linux")

IP_RECVTTL = 12  # Not a name of the socket module.


@pytest.fixture
def pair() -> Iterator[tuple[MulticastLink, MulticastLink]]:
    one, two = open_links(2)
    yield one, two
    close(one, two)


def has_segmentation() -> bool:
    (probe,) = open_links(1)
    has_it = probe.statistics().is_segmenting and probe.statistics().is_coalescing
    close(probe)
    return has_it


needs_segmentation = pytest.mark.skipif(
    sys.platform == "linux" and not has_segmentation(), reason="kernel without UDP_SEGMENT/UDP_GRO"
)


def test_loopback_interface_is_found_with_its_addresses() -> None:
    (loopback,) = [one for one in interfaces() if one.is_loopback]

    assert "127.0.0.1" in loopback.ipv4
    assert loopback.is_up
    assert loopback.index >= 1
    assert loopback.mtu >= 1500


def test_nothing_has_changed_since_the_last_look() -> None:
    watch = InterfaceWatch()
    try:
        watch.has_changed()
        assert not watch.has_changed()
    finally:
        watch.close()


def test_group_and_peer_get_what_was_sent_from_our_address(
    pair: tuple[MulticastLink, MulticastLink],
) -> None:
    one, two = pair

    assert one.send(burst(b"to all"))
    assert receive(two, 1) == [(b"to all", one.address)]
    assert two.send(burst(b"to you", to=one.address))
    assert receive(one, 1) == [(b"to you", two.address)]
    assert one.address[0] == "127.0.0.1"
    assert one.address_text == f"127.0.0.1:{one.address[1]}"


def test_own_frames_are_not_received(pair: tuple[MulticastLink, MulticastLink]) -> None:
    one, two = pair

    assert one.send(burst(*numbered(10)))
    assert two.send(burst(b"from two"))

    assert payloads(receive(one, 1)) == [b"from two"]
    assert payloads(receive(two, 10)) == numbered(10)
    assert take(one) == take(two) == []
    assert one.statistics().frames_in == 1
    assert one.statistics().own_frames == 0


def test_without_a_filter_own_frames_are_dropped_after_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError("no filter here")

    monkeypatch.setattr(bpf, "attach", refuse)
    one, two = open_links(2)

    assert one.send(burst(b"mine"))

    assert payloads(receive(two, 1)) == [b"mine"]
    assert take(one) == []
    assert one.statistics().own_frames == 1
    close(one, two)


@pytest.mark.parametrize(("options", "ttl"), [({}, 1), ({"ttl": 7}, 7)])
def test_frames_stay_on_the_lan_unless_told_otherwise(options: dict[str, int], ttl: int) -> None:
    group, port = fresh_group(), free_port()
    link = MulticastLink(group, port, interface="127.0.0.1", **options)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as hearer:
        hearer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        hearer.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        hearer.bind((group, port))
        member = socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
        hearer.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        hearer.settimeout(10)
        assert link.send(burst(b"x"))
        data, [(_, _, seen)], _, _ = hearer.recvmsg(100, 100)
    assert (data, int.from_bytes(seen, sys.byteorder)) == (b"x", ttl)
    close(link)


def test_two_groups_on_one_port_do_not_mix() -> None:
    port = free_port()
    groups = [fresh_group(), fresh_group()]
    links = [MulticastLink(group, port, interface="127.0.0.1") for group in groups * 2]
    first, second, other_first, other_second = links

    assert first.send(burst(b"to the first"))
    assert second.send(burst(b"to the second"))

    assert payloads(receive(other_first, 1)) == [b"to the first"]
    assert payloads(receive(other_second, 1)) == [b"to the second"]
    assert [take(link) for link in links] == [[]] * 4
    close(*links)


def test_the_group_is_not_heard_by_what_is_sent_to_the_port_alone(
    pair: tuple[MulticastLink, MulticastLink],
) -> None:
    one, two = pair

    assert one.send(burst(b"stray", to=("127.0.0.1", two.port)))
    assert one.send(burst(b"meant"))

    assert payloads(receive(two, 1)) == [b"meant"]
    assert take(two) == []


def test_two_processes_both_receive_every_frame() -> None:
    (sender,) = open_links(1)
    listener = (
        "import sys, tests.integration.link_probe as probe\n"
        "from hubbub.links.multicast import MulticastLink\n"
        "link = MulticastLink(sys.argv[1], int(sys.argv[2]), interface='127.0.0.1')\n"
        "print('ready', flush=True)\n"
        "print(len(set(probe.payloads(probe.receive(link, 50)))), flush=True)\n"
    )
    command = [sys.executable, "-c", listener, sender.group, str(sender.port)]
    root = Path(__file__).parents[2]
    children = [
        subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"

    assert sender.send(burst(*numbered(50)))

    for child in children:
        output, _ = child.communicate(timeout=DEADLINE_S * 2)
        assert output == "50\n"
    close(sender)


@needs_segmentation
def test_a_burst_travels_as_one_piece(pair: tuple[MulticastLink, MulticastLink]) -> None:
    one, two = pair
    frames = [*numbered(40, 1400), b"a shorter last one"]

    assert one.send(burst(*frames))

    received = two.receive()
    assert [(len(data), size, source) for data, size, source in received] == [
        (40 * 1400 + 18, 1400, one.address)
    ]
    assert received[0][0] == b"".join(frames)
    assert two.statistics().frames_in == 41


@needs_segmentation
def test_the_largest_burst_travels_as_one_piece(
    pair: tuple[MulticastLink, MulticastLink],
) -> None:
    one, two = pair
    count = one.burst_bytes_max // 1400

    assert one.send(burst(*numbered(count, 1400), bytes(one.burst_bytes_max - count * 1400)))

    assert [len(data) for data, _, _ in two.receive()] == [one.burst_bytes_max]


@pytest.mark.parametrize("gso", [False, True])
def test_frames_are_the_same_with_and_without_segmentation(gso: bool) -> None:
    one, two = open_links(2, gso=gso)
    frames = [*numbered(100, 600), b"end"]

    assert one.send(burst(*frames))
    assert one.send(burst(*numbered(3, 61_440)[:1]))

    assert payloads(receive(two, 102)) == [*frames, bytes(61_440)]
    assert one.statistics().frames_out == 102
    close(one, two)


@needs_segmentation
def test_look_that_finds_a_run_of_frames_takes_some_more_but_not_all(
    pair: tuple[MulticastLink, MulticastLink],
) -> None:
    one, two = pair
    for number in range(6):
        assert one.send(burst(*numbered(20, start=20 * number)))

    runs = [two.look(), two.look()]

    assert [len(taken) for taken in runs] == [inlet.RUNS_AT_ONCE, 6 - inlet.RUNS_AT_ONCE]
    assert b"".join(data for taken in runs for data, _, _ in taken) == b"".join(numbered(120))


def test_look_that_finds_a_single_frame_reads_no_further(
    pair: tuple[MulticastLink, MulticastLink],
) -> None:
    one, two = pair
    for frame in numbered(3):
        assert one.send(burst(frame))

    assert [len(two.look()) for _ in range(3)] == [1, 1, 1]


def test_without_segmentation_there_are_no_bursts() -> None:
    (link,) = open_links(1, gso=False)

    assert link.burst_bytes_max == 0
    assert not link.statistics().is_segmenting
    close(link)


def test_received_buffers_are_immutable_and_stay(
    pair: tuple[MulticastLink, MulticastLink],
) -> None:
    one, two = pair

    kept = []
    for number in range(20):
        assert one.send(burst(bytes([number]) * 500))
        kept += two.receive()

    assert [data for data, _, _ in kept] == [bytes([number]) * 500 for number in range(20)]
    assert {type(data) for data, _, _ in kept} == {bytes}


def test_only_an_empty_answer_means_that_nothing_is_there(
    pair: tuple[MulticastLink, MulticastLink],
) -> None:
    one, two = pair
    let_it_read_singly(one, two)

    for number in range(40):
        assert one.send(burst(b"many", to=two.address if number % 2 else None))

    assert len(take(two)) == 40


def let_it_read_singly(sender: MulticastLink, receiver: MulticastLink) -> None:
    """Send frames to the group one at a time, until the receiver reads only once a call."""
    for _ in range(2):
        assert sender.send(burst(b"single"))
        assert len(receiver.receive()) == 1


def test_an_answer_is_taken_at_once_although_the_group_was_heard_before(
    pair: tuple[MulticastLink, MulticastLink],
) -> None:
    one, two = pair
    let_it_read_singly(one, two)

    assert one.send(burst(b"answer", to=two.address))

    assert two.receive() == [(b"answer", 0, one.address)]


def test_an_answer_is_not_held_up_by_a_busy_group(
    pair: tuple[MulticastLink, MulticastLink],
) -> None:
    one, two = pair
    let_it_read_singly(one, two)
    for _ in range(100):
        assert one.send(burst(b"busy"))
    assert one.send(burst(b"answer", to=two.address))

    taken = [data for _ in range(inlet.SINGLE_READS + 1) for data, _, _ in two.receive()]

    assert b"answer" in taken


def test_one_call_takes_a_bounded_number_of_reads(
    pair: tuple[MulticastLink, MulticastLink],
) -> None:
    one, two = pair
    for _ in range(3 * inlet.READS_MAX):
        assert one.send(burst(b"x"))

    assert len(two.receive()) == inlet.READS_MAX


def test_a_208_kib_buffer_has_a_window_that_fits() -> None:
    """106,496 asked for is 212,992 in the kernel's count: Linux's default, 208 KiB."""
    one, two = open_links(2, receive_buffer_bytes=106_496, frame_bytes_max=1472)

    assert two.window_bytes == window_bytes(212_992, 1472) == 68_039
    full_frames = two.window_bytes // 1472
    for frame in numbered(full_frames, 1472):
        assert one.send(burst(frame))

    assert len(take(two)) == full_frames
    assert two.statistics().kernel_drops == 0
    close(one, two)


@pytest.mark.parametrize("frame_bytes", [1232, 1472, 9000, 16_000, 32_000, 61_440])
def test_twice_the_window_is_what_the_buffer_holds(frame_bytes: int) -> None:
    one, two = open_links(2, receive_buffer_bytes=1 << 20, frame_bytes_max=frame_bytes)
    sent = 4 * two.window_bytes // frame_bytes
    for _ in range(sent):
        assert one.send(burst(bytes(frame_bytes)))

    held_bytes = len(take(two)) * frame_bytes

    tolerance_bytes = frame_bytes + two.window_bytes // 10
    assert held_bytes == pytest.approx(2 * two.window_bytes, abs=tolerance_bytes)
    close(one, two)


def test_what_the_kernel_drops_is_counted_and_own_frames_are_not() -> None:
    one, two = open_links(2, receive_buffer_bytes=106_496)
    for _ in range(500):
        assert one.send(burst(bytes(1000)))

    received = len(take(two))

    assert received < 500
    assert two.statistics().kernel_drops == 500 - received
    assert one.statistics().kernel_drops == 0
    close(one, two)


@needs_segmentation
def test_own_bursts_are_not_counted_as_kernel_drops(
    pair: tuple[MulticastLink, MulticastLink],
) -> None:
    one, two = pair
    for _ in range(20):
        assert one.send(burst(*numbered(30)))

    assert len(take(two)) == 600
    assert one.statistics().kernel_drops == two.statistics().kernel_drops == 0


def test_buffers_are_as_large_as_allowed_by_default() -> None:
    (link,) = open_links(1)
    limit_bytes = int(Path("/proc/sys/net/core/rmem_max").read_text())

    assert link.window_bytes >= window_bytes(min(limit_bytes, 8 << 20), link.frame_bytes_max)
    close(link)


def test_a_datagram_that_does_not_fit_is_counted_and_dropped(
    pair: tuple[MulticastLink, MulticastLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    monkeypatch.setattr(inlet, "_READ_BYTES", 100)

    assert one.send(burst(bytes(101)))
    assert one.send(burst(bytes(100)))

    assert payloads(receive(two, 1)) == [bytes(100)]
    assert two.statistics().truncated == 1


def test_a_frame_no_datagram_can_carry_is_counted_and_no_reason_for_an_event(
    pair: tuple[MulticastLink, MulticastLink],
) -> None:
    one, _ = pair

    assert one.send(burst(bytes(70_000)))

    assert one.statistics().send_errors == 1
    assert one.poll_events(0) == []


def test_a_refusal_to_send_is_an_event_and_success_another(
    pair: tuple[MulticastLink, MulticastLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    assert one.poll_events(0) == []

    with monkeypatch.context() as patch:
        patch.setattr(one._pairs[0], "unicast", Refusal(errno.EPERM))
        assert one.send(burst(b"refused"))
    assert [str(event) for event in one.poll_events(0)] == [
        f"link down: lo on {one.channel}: cannot send: Operation not permitted"
    ]
    assert one.poll_events(0) == []

    assert one.send(burst(b"taken"))
    assert one.poll_events(0) == [LinkUp(one.channel, "lo")]
    assert one.poll_events(0) == []
    assert payloads(receive(two, 1)) == [b"taken"]


class Refusal:
    """A socket behind a firewall."""

    def __init__(self, code: int) -> None:
        self._code = code

    def sendto(self, *_: Any) -> int:
        raise OSError(self._code, os.strerror(self._code))


def faulty_run(seed: int, direction: str) -> list[bytes]:
    faults = Faults(loss=0.2, duplicate=0.1, reorder=0.1, corrupt=0.1, seed=seed)
    group, port = fresh_group(), free_port()
    sender = MulticastLink(
        group, port, interface="127.0.0.1", faults=faults if direction == "out" else None
    )
    receiver = MulticastLink(
        group, port, interface="127.0.0.1", faults=faults if direction == "in" else None
    )
    for start in range(0, 200, 20):
        assert sender.send(burst(*numbered(20, 700, start)))
        assert sender.send(burst(*numbered(1, 700, start), to=receiver.address))
    end = max(sender.deadline() or 0, receiver.deadline() or 0)
    sender.advance(end)
    frames = payloads(take(receiver))
    frames += [data for data, _, _ in receiver.advance(1 << 62)]
    done = sender.statistics().faults_out or receiver.statistics().faults_in
    assert done is not None
    assert done.seen == 210
    assert min(done.lost, done.duplicated, done.reordered, done.corrupted) > 0
    close(sender, receiver)
    return frames


@pytest.mark.parametrize("direction", ["in", "out"])
def test_faults_do_the_same_for_the_same_seed(direction: str) -> None:
    first = faulty_run(4, direction)

    assert faulty_run(4, direction) == first
    assert faulty_run(5, direction) != first


def test_delayed_frames_arrive_when_their_time_has_come_in_both_directions() -> None:
    now = [0]
    one, two = open_links(2, faults=Faults(delay_ms=30, seed=1), clock=lambda: now[0])

    assert one.send(burst(b"slowly"))
    assert one.deadline() == 30 * MS
    assert two.receive() == []
    assert one.advance(30 * MS) == []
    now[0] = 30 * MS
    assert two.receive() == []
    assert two.deadline() == 60 * MS
    assert two.advance(60 * MS) == [(b"slowly", 0, one.address)]
    assert one.deadline() is two.deadline() is None
    close(one, two)


def test_close_twice_gives_everything_back() -> None:
    before = descriptors()
    (link,) = open_links(1)
    assert len(link.filenos()) == 2

    link.close()
    link.close()

    assert not descriptors() - before
    assert link.poll_events(0) == []


def test_a_refused_link_says_why_and_leaves_nothing_open() -> None:
    group, port = fresh_group(), free_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as selfish:
        selfish.bind((group, port))
        before = descriptors()
        with pytest.raises(LinkError, match=f"cannot use group {group} port {port} on lo .*in use"):
            MulticastLink(group, port, interface="127.0.0.1")
        assert not descriptors() - before


def test_ipv6_on_loopback() -> None:
    try:
        one, two = open_links(2, group="ff02::7266", interface="::1")
    except LinkError as error:
        pytest.skip(str(error))
    assert one.send(burst(b"six"))
    assert payloads(receive(two, 1)) == [b"six"]
    close(one, two)


def test_an_unknown_interface_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'nowhere0' is not there; this machine has: lo"):
        MulticastLink(fresh_group(), free_port(), interface="nowhere0")
