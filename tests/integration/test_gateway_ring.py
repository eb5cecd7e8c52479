"""Hosts as network namespaces: a ring of three LANs that lose frames, and gateways that are killed.

The test's own namespace is the switches: a bridge for each LAN, and cables to hosts. A host is a
process in a namespace of its own, so one that is killed takes its interfaces with it.
"""

import ctypes
import json
import os
import random
import select
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import hubbub
from hubbub import Faults, GapAbandoned
from hubbub.gateway import Gateway, Side
from tests.integration.bus import IS_SOAK, Actor, Events, acting, hear, say, wait_until
from tests.integration.namespace import CLONE_NEWNET, ip, run_scenario
from tests.integration.test_bus_veth import is_able

pytestmark = pytest.mark.netns

LANS = 3
LOSS = 0.05
PAUSE_S = 0.005
DEAD_S, ALIVE_S = 2.0, 3.0
KILLS = 12 if IS_SOAK else 1
STARVED_S = 0.1  # Who pauses for so long was kept from running: timers promise nothing then.

Runs = list[list[int]]  # First and last of sequences without a hole.


# Hosts.


def settle_in(addresses: list[str]) -> None:
    """Move this process into a namespace of its own, and wait for cables."""
    os.environ["HUBBUB_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="hubbub-host-")
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    say("elsewhere")
    hear()
    ip("link set lo up")
    for number, address in enumerate(addresses):
        ip(f"address add {address}/24 dev eth{number}")
        ip(f"link set eth{number} up")


def stand(addresses: list[str], node_id: str) -> None:
    """Be a gateway between two LANs until killed."""
    settle_in(addresses)
    sides = [Side(f"eth{number}", interface=f"eth{number}") for number in range(2)]
    faults = Faults(loss=LOSS, direction="in")
    with Gateway.open(sides, name="gw", node_id=node_id, faults=faults) as gateway:
        say("ready")
        while hear() == "how is it?":
            say(gateway.statistics().is_standby)


class Notes(dict[str, Runs]):
    """What a host received, by who published it."""

    wrong = 0

    def has_all(self, ends: dict[str, int]) -> bool:
        """Tell whether the last message of everybody is here."""
        return all(name in self and self[name][-1][1] == end for name, end in ends.items())

    def take(self, message: hubbub.Message) -> None:
        runs, sequence = self.setdefault(message.source.name, []), message.sequence
        self.wrong += message.payload != b"%d" % sequence
        if runs and sequence <= runs[-1][1]:
            self.wrong += 1  # It came twice, or too late.
        elif runs and sequence == runs[-1][1] + 1:
            runs[-1][1] = sequence
        else:
            runs.append([sequence, sequence])


def talk(address: str, name: str) -> None:
    """Be a node that publishes steadily and hears all others, until told to stop."""
    settle_in([address])
    events, notes, times = Events(), Notes(), list[float]()
    faults = Faults(loss=LOSS, direction="in")
    with hubbub.open(name, interface="eth0", faults=faults, on_event=events) as node:
        node.subscribe("/n/*", notes.take, queue=100_000, no_local=True)
        publisher = node.publisher(f"/n/{name}")
        say("ready")
        hear()
        while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
            times.append(time.monotonic())
            publisher.publish(b"%d" % len(times))
        hear()
        node.flush(30)
        say(times)
        ends = json.loads(hear())
        del ends[name]
        with suppress(AssertionError):  # The test says what is missing.
            wait_until(lambda: notes.has_all(ends))
        gaps = [[one.publisher.name, one.first, one.last] for one in events.of(GapAbandoned)]
        say([notes, notes.wrong, gaps])
        hear()


# Switches.


class Ring:
    """Three LANs, a node on each, and a gateway between any two."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._numbers = count(1)
        Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
        for lan in range(LANS):
            ip(f"link add lan{lan} type bridge mcast_snooping 0")
            ip(f"link set lan{lan} up")
        self.talkers = [self._begin([lan], talk, f"n{lan}") for lan in range(LANS)]
        self.gateways = [self._stand(place) for place in range(LANS)]

    def _begin(self, lans: list[int], function: Any, *arguments: Any) -> Actor:
        """Start a host, and give it a cable to each of some LANs."""
        number = next(self._numbers)
        addresses = [f"10.77.{lan}.{number}" for lan in lans]
        place = addresses if len(lans) > 1 else addresses[0]
        actor = self._stack.enter_context(acting(function, place, *arguments))
        assert actor.hear() == "elsewhere"
        for end, lan in enumerate(lans):
            cable = f"v{number}x{end}"
            ip(f"link add {cable} type veth peer name eth{end} netns {actor.pid}")
            ip(f"link set {cable} master lan{lan} up")
        actor.tell()
        assert actor.hear() == "ready"
        return actor

    def _stand(self, place: int) -> Actor:
        return self._begin([place, (place + 1) % LANS], stand, f"{place + 1:02x}" * 12)

    def kill(self, place: int) -> None:
        """Kill a gateway, and let it come back after a while."""
        self.gateways[place].process.kill()
        time.sleep(DEAD_S)
        self.gateways[place] = self._stand(place)

    def finish(self) -> list["Account"]:
        """End publishing, let all of it arrive, and ask everybody what it published and heard."""
        times = []
        for talker in self.talkers:
            talker.tell("stop")
            times.append(talker.hear(60))
        ends = json.dumps({f"n{lan}": len(one) for lan, one in enumerate(times)})
        accounts = []
        for number, talker in enumerate(self.talkers):
            talker.tell(ends)
            accounts.append(Account(f"n{number}", times[number], *talker.hear(60)))
        return accounts


class Account(NamedTuple):
    """When a node published each message, and what it heard and missed of others."""

    name: str
    times_s: list[float]
    heard: dict[str, Runs]
    wrong: int
    gaps: list[list[Any]]

    def holes(self, name: str) -> set[int]:
        """Return what did not come of one that was heard."""
        runs = self.heard[name]
        came = {number for first, last in runs for number in range(first, last + 1)}
        return set(range(runs[0][0], runs[-1][1] + 1)) - came

    def reported(self, name: str) -> list[int]:
        """Return what we were told will not come."""
        begin = self.heard[name][0][0]
        spans = [(first, last) for who, first, last in self.gaps if who == name]
        return [one for first, last in spans for one in range(max(first, begin), last + 1)]


def check(accounts: list[Account]) -> None:
    """All came, once and in order, or was told to be missing; and nothing is, if all could run."""
    was_kept_from_running = max(map(_longest_pause, accounts)) > STARVED_S
    for account in accounts:
        assert account.wrong == 0, f"{account.name} got {account.wrong} twice or out of order"
        for other in accounts:
            if other is account:
                continue
            place = f"{account.name} of {other.name}"
            assert account.heard.keys() >= {other.name}, f"{place}: nothing"
            end = account.heard[other.name][-1][1]
            assert end == len(other.times_s), f"{place}: up to {end} of {len(other.times_s)}"
            holes, reported = sorted(account.holes(other.name)), account.reported(other.name)
            assert holes == sorted(reported), f"{place}: lacks {holes}, told of {reported}"
            assert not holes or was_kept_from_running, f"{place}: lacks {holes}"


def _longest_pause(account: Account) -> float:
    return max(later - sooner for sooner, later in pairwise(account.times_s))


def kill_gateways_of_a_ring() -> None:
    is_able()
    draw = random.Random(7)
    with ExitStack() as stack:
        ring = Ring(stack)
        for talker in ring.talkers:
            talker.tell()
        for _ in range(KILLS):
            time.sleep(ALIVE_S)
            ring.kill(draw.randrange(LANS))
        time.sleep(ALIVE_S)
        accounts = ring.finish()
        lost = sum(len(one.holes(name)) for one in accounts for name in one.heard)
        sys.stdout.write(f"{sum(len(one.times_s) for one in accounts)} published, {lost} lost\n")
        check(accounts)


@pytest.mark.soak
def test_ring_of_lossy_lans_outlives_gateways_that_are_killed() -> None:
    run_scenario(kill_gateways_of_a_ring, timeout_s=60 + 10 * KILLS)
