"""Whatever arrives, nothing raises, nothing grows, and everything is taken or counted by reason."""

import os
from itertools import islice
from random import Random

import pytest

from hubbub.limits import US
from tests.fuzz.malformed import Attacker
from tests.fuzz.victim import faults, open_victim, target_of
from tests.harness import Node

IS_SOAK = os.environ.get("HUBBUB_SOAK") == "1"
DATAGRAMS_PER_LIFE = 4_000  # Then the attackers have said goodbye to the victim too often.
CHUNK = 50_000
CHUNKS = 200 if IS_SOAK else 4  # Ten million, or two hundred thousand.
ADDRESSES = [("10.0.0.1", 7001), ("10.0.0.1", 7002), ("10.9.9.9", 1), ("fe80::1", 2, 0, 3)]


def is_accounted(victim: Node, key: bytes, now: int, drops_before: int) -> bool:
    """Tell whether the last datagram was counted as dropped, or reached a peer's state."""
    core = victim.core
    if core.endpoint.drops.total() > drops_before:
        return True
    peer = core.peers.get(key)
    return (peer is not None and peer.heard_ns == now) or key in core.discovery.departed


def drain(victim: Node, now: int) -> int:
    """Let the shell take all there is; return the bytes that would go out."""
    size = 0
    while (burst := victim.core.next_burst(now)) is not None:
        size += sum(map(len, burst.buffers))
    victim.core.deliveries.clear()
    victim.core.events.clear()
    return size


def live(seed: int, count: int) -> None:
    """Send one victim so many malformed datagrams."""
    lan, victim = open_victim(seed)
    random = Random(seed)
    attacker = Attacker(random, target_of(lan, victim))
    now = lan.now
    for number, datagram in enumerate(islice(attacker.datagrams(), count)):
        now += 20 * US
        before = victim.core.endpoint.drops.total()
        context = f"seed {seed}, datagram {number}: {datagram.hex()}"
        try:
            victim.core.receive(now, datagram, 0, random.choice(ADDRESSES))
        except Exception as error:
            raise AssertionError(context) from error
        if datagram:
            assert is_accounted(victim, datagram[14:34], now, before), context
        if number % 10 == 0:
            victim.core.advance(now)
            drain(victim, now)
        if number % 500 == 0:
            assert faults(victim.core) == [], context
    assert faults(victim.core) == [], f"seed {seed}"


@pytest.mark.soak
@pytest.mark.timeout(3600 if IS_SOAK else 120)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_malformed_datagrams_neither_raise_nor_grow_and_are_counted(
    chunk: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for life in range(-(-CHUNK // DATAGRAMS_PER_LIFE)):
        left = CHUNK - life * DATAGRAMS_PER_LIFE
        live(1000 * chunk + life, min(left, DATAGRAMS_PER_LIFE))
    if IS_SOAK:
        with capsys.disabled():
            print(f" {(chunk + 1) * CHUNK:,} datagrams", end="", flush=True)  # noqa: T201
