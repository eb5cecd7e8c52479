"""Two hosts on a cable: namespaces joined by veth, MTU-sized frames, loss, a cable pulled out."""

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hubbub import Faults, GapAbandoned, LinkDown, LinkUp
from tests.integration.bus import (
    Actor,
    Events,
    Place,
    acting,
    fresh_place,
    hear,
    say,
    take,
    wait_until,
)
from tests.integration.namespace import CLONE_NEWNET, ip, run_scenario, skip

pytestmark = pytest.mark.netns

HERE, THERE = "10.72.66.1", "10.72.66.2"
MTU_FRAME_BYTES = 1500 - 28
COUNT = 20_000


def add_host(actor: Actor) -> None:
    """Give an actor that has left our namespace the other end of a cable."""
    Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
    ip(f"link add here type veth peer name there netns {actor.pid}")
    ip("link set here up")
    ip(f"address add {HERE}/24 dev here")


def leave(address: str = THERE) -> None:
    """Move this process into a network namespace of its own, and wait for a cable."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    say("elsewhere")
    hear()
    ip("link set lo up")
    ip("link set there up")
    ip(f"address add {address}/24 dev there")


def publish_from_there(place: list[Any], count: int, loss: float) -> None:
    """Publish from the other end of the cable."""
    leave()
    faults = Faults(loss=loss) if loss else None
    with Place(*place).open("there", interface="there", faults=faults) as node:
        publisher = node.publisher("/numbers")
        large = node.publisher("/large")
        assert publisher.wait_for_subscribers(1, 30) and large.wait_for_subscribers(1, 30)
        for number in range(count):
            publisher.publish(b"%d" % number)
        large.publish(bytes(1_000_000))
        assert node.flush(60)
        [channel] = node.statistics().channels
        link = channel.link
        say([link.is_segmenting, link.frames_out, link.bytes_out, channel.repairs_sent])
        while hear() == "tick":
            publisher.publish(b"tick")
            say("ticked")


def is_able() -> None:
    """Skip where the kernel has no veth."""
    done = subprocess.run(
        ["ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        skip(f"no veth here: {done.stderr.strip()}")
    ip("link delete probe0")


def lossy_cable() -> None:
    is_able()
    place, events = fresh_place(), Events()
    with acting(publish_from_there, place, COUNT, 0.05) as actor:
        assert actor.hear() == "elsewhere"
        add_host(actor)
        actor.tell()
        faults = Faults(loss=0.05)
        with place.open("here", interface="here", faults=faults, on_event=events) as node:
            subscription = node.subscribe("/numbers", queue=COUNT + 1)
            large = node.subscribe("/large")
            numbers = [int(message.payload) for message in take(subscription, COUNT)]
            assert numbers == list(range(COUNT))
            assert take(large, 1)[0].payload == bytes(1_000_000)
            is_segmenting, frames, size_bytes, repairs = actor.hear()
            assert is_segmenting and repairs > 0
            assert size_bytes / frames <= MTU_FRAME_BYTES and frames > 700
            [channel] = node.statistics().channels
            assert channel.link.is_coalescing
            assert events.of(GapAbandoned) == []


def cable_pulled_out() -> None:
    is_able()
    place, events = fresh_place(), Events()
    with acting(publish_from_there, place, 10, 0.0) as actor:
        assert actor.hear() == "elsewhere"
        add_host(actor)
        actor.tell()
        with place.open("here", interface="here", on_event=events) as node:
            subscription = node.subscribe("/numbers")
            node.subscribe("/large")
            take(subscription, 10)
            actor.hear()
            ip("link set here down")
            assert events.wait(LinkDown).interface == "here"
            for _ in range(5):
                actor.tell("tick")
                assert actor.hear() == "ticked"
            ip("link set here up")
            assert events.wait(LinkUp).interface == "here"
            # What was published while the cable was out is repaired, and what comes is received.
            actor.tell("tick")
            assert actor.hear() == "ticked"
            messages = take(subscription, 6)
            assert [message.sequence for message in messages] == list(range(11, 17))
            assert events.of(GapAbandoned) == []
            wait_until(lambda: node.statistics().channels[0].peers[0].is_present)


def test_mtu_sized_frames_over_a_lossy_cable_arrive_complete() -> None:
    run_scenario(lossy_cable)


def test_interface_down_and_up_again_is_reported_and_recovered_from() -> None:
    run_scenario(cable_pulled_out)
