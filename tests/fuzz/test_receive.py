"""Whatever arrives, nothing raises, nothing grows, and everything is taken or counted by reason."""

import os
import tracemalloc
from hashlib import sha1
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from hubbub.limits import US
from tests.fuzz.malformed import Attacker
from tests.fuzz.victim import REASSEMBLY_BYTES, converse_on, faults, open_victim, target_of
from tests.harness import Node

IS_SOAK = os.environ.get("HUBBUB_SOAK") == "1"
DATAGRAMS_PER_LIFE = 1_000  # By then most of the victim's peers were made to leave it.
CHUNK = 50_000
CHUNKS = 200 if IS_SOAK else 1  # Ten million, or fifty thousand.
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


def describe(seed: int, number: int, datagram: bytes) -> str:
    """Say which datagram it was, so that it can be sent again."""
    return f"seed {seed}, datagram {number}: {datagram.hex()}"


def stamp_of(chunk: int) -> Path:
    """Name the file that says that a chunk has passed with this very code."""
    root = Path(__file__).parents[2]
    files = [root / "tests" / "harness.py", *(root / "tests" / "fuzz").glob("*.py")]
    files += (root / "src" / "hubbub").rglob("*.py")
    code = sha1(b"".join(path.read_bytes() for path in sorted(files)))
    return root / ".soak" / f"fuzz-{code.hexdigest()[:12]}" / str(chunk)


def live(seed: int, count: int, reassembly_bytes: int = REASSEMBLY_BYTES) -> Node:
    """Send one victim so many malformed datagrams."""
    lan, victim = open_victim(seed, reassembly_bytes)
    random = Random(seed)
    attacker = Attacker(random, target_of(lan, victim))
    now = lan.now
    for number, datagram in enumerate(islice(attacker.datagrams(), count)):
        now += 20 * US
        before = victim.core.endpoint.drops.total()
        try:
            victim.core.receive(now, datagram, 0, random.choice(ADDRESSES))
            if number % 50 == 0:
                now = converse_on(lan, now)
        except Exception as error:
            raise AssertionError(describe(seed, number, datagram)) from error
        if number % 50 and not is_accounted(victim, datagram[14:34], now, before):
            pytest.fail(f"neither taken nor counted: {describe(seed, number, datagram)}")
        if number % 10 == 0:
            victim.core.advance(now)
            drain(victim, now)
        if number % 500 == 0:
            assert faults(victim.core) == [], describe(seed, number, datagram)
    assert faults(victim.core) == [], f"seed {seed}"
    return victim


@pytest.mark.soak
@pytest.mark.timeout(3600 if IS_SOAK else 120)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_malformed_datagrams_neither_raise_nor_grow_and_are_counted(
    chunk: int, capsys: pytest.CaptureFixture[str]
) -> None:
    stamp = stamp_of(chunk)
    if IS_SOAK and stamp.exists():
        pytest.skip("passed before with this code")
    for life in range(-(-CHUNK // DATAGRAMS_PER_LIFE)):
        left = CHUNK - life * DATAGRAMS_PER_LIFE
        live(1000 * chunk + life, min(left, DATAGRAMS_PER_LIFE))
    if IS_SOAK:
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.touch()
        with capsys.disabled():
            print(f" {(chunk + 1) * CHUNK:,} datagrams", end="", flush=True)  # noqa: T201


def test_memory_that_malformed_datagrams_can_claim_is_bounded() -> None:
    tracemalloc.start()
    try:
        victims = []
        for seed in range(3):
            before = tracemalloc.get_traced_memory()[0]
            victims.append(live(seed, 3_000, reassembly_bytes=1 << 18))
            # Frames without a grant and missing frames of two peers are the largest tables.
            assert tracemalloc.get_traced_memory()[0] - before < 24 << 20
    finally:
        tracemalloc.stop()


def test_every_reason_to_drop_is_met() -> None:
    reasons = set()
    for seed in range(12):
        reasons |= set(live(seed, 1_000).drops)
    assert reasons >= {
        "short", "magic", "version", "domain", "own", "sealed", "checksum", "sequence", "stranger",
        "kind", "malformed", "duplicate", "old_grant", "old_status", "declared",
    }  # fmt: skip


def test_joined_datagrams_are_taken_apart_even_if_they_lie_about_their_size() -> None:
    lan, victim = open_victim(0)
    target = target_of(lan, victim)
    joined = b"".join(frame for frames in target.frames.values() for frame in frames)
    for segment_bytes in (1, 69, 70, 71, 500, 1400, len(joined), len(joined) + 1):
        victim.core.receive(lan.now, joined, segment_bytes, ADDRESSES[0])
    assert faults(victim.core) == []
