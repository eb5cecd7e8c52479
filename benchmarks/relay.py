"""`python -m benchmarks.relay`: one gateway with a hundred components, of which ten match.

A process sends samples by multicast on loopback as fast as it can; the gateway of a vehicle takes
them in, and hands each to the ten components that want its type. The same by pyzmq: a SUB socket
takes the messages in, and an inproc PUB socket hands each to those of a hundred SUB sockets that
subscribe to its type; these are read, because a queue that nobody reads costs nothing.
"""

import argparse
import secrets
import subprocess
import sys
import time
from itertools import count
from random import Random
from typing import Any

import hubbub
from benchmarks.report import heading
from hubbub.links.multicast import MulticastLink
from hubbub.protocol.burst import Burst
from hubbub.protocol.endpoint import Endpoint, Identity
from hubbub.protocol.settings import Settings
from hubbub.protocol.timetrigger.consumer import Consumer
from hubbub.wire.header import RESPONSE, finish
from hubbub.wire.timed import Response, encode_response, make_origin

COMPONENTS, MATCHING = 100, 10
VALUE = bytes(16)
BURST = 40
TYPE = 1
ZMQ_ADDRESS = "tcp://127.0.0.1:{port}"


def send(domain: str, group: str, port: int, seconds: float, rate: int) -> None:
    """Send samples of one type, each for another tick, at most so many a second."""
    link = MulticastLink(group, port, interface="127.0.0.1")
    identity = Identity("sender", secrets.token_bytes(12), 1, "", 0, domain)
    endpoint = Endpoint(identity, Settings(), "relay", Random(0), count(1))
    shared = endpoint.make_prefix(RESPONSE, 0, 0)
    origin = make_origin(identity.id, 2)
    tick_ns, sequence = time.time_ns() // 1_000_000 * 1_000_000, 0
    bursts = []
    # Made before: the sender must not be what is measured.
    for _ in range(int(seconds * rate) // BURST):
        parts: list[bytes | memoryview] = []
        for _ in range(BURST):
            sequence += 1
            tick_ns += 1_000_000
            body = encode_response(
                Response(origin, 0, TYPE, 1, 0, 0, sequence, tick_ns, tick_ns, 1000, VALUE)
            )
            parts += [finish(shared, 0, sequence, 0, body), body]
        bursts.append(Burst(None, [b"".join(parts)], len(parts[0]) + len(parts[1])))
    start_s, sent = time.monotonic(), 0
    for burst in bursts:
        link.send(burst)
        sent += BURST
        ahead_s = sent / rate - (time.monotonic() - start_s)
        if ahead_s > 0:
            time.sleep(ahead_s)
        if time.monotonic() - start_s > seconds:
            break
    link.close()


def relay_by_hubbub(seconds: float, rate: int) -> tuple[float, float, float]:
    """Return frames a second that came in, hand-overs to components, share of a processor."""
    domain, group = f"relay-{secrets.token_hex(4)}", f"239.201.7.{secrets.randbelow(250) + 1}"
    port = 20_000 + secrets.randbelow(20_000)
    handed = [0]

    def take(sample: Any) -> None:
        handed[0] += 1

    channel = hubbub.Channel(group, port)
    with hubbub.Vehicle(
        "gateway", domain=domain, interface="127.0.0.1", channels=[channel], links=["multicast"]
    ) as car:
        gateway, driver = car._gateway, car._driver
        for place in range(COMPONENTS):
            type = TYPE if place < MATCHING else 1000 + place
            consumer = Consumer(0, type, f"/x/{type}", gateway.clock, period_us=1000)
            driver.call(gateway.consume, consumer, take)
        arguments = [domain, group, str(port), str(seconds + 1), str(rate)]
        with subprocess.Popen([sys.executable, "-m", "benchmarks.relay", "--send", *arguments]):
            deadline_s = time.monotonic() + 60
            while not handed[0] and time.monotonic() < deadline_s:
                time.sleep(0.01)
            before, start_s, first = car.gateway().relayed, time.monotonic(), handed[0]
            used_s = time.process_time()
            time.sleep(seconds)
            after, elapsed_s = car.gateway().relayed, time.monotonic() - start_s
            last, share = handed[0], (time.process_time() - used_s) / elapsed_s
    return (after - before) / elapsed_s, (last - first) / elapsed_s, share


def send_by_zmq(port: int, seconds: float, rate: int) -> None:
    """Send the same by pyzmq."""
    import zmq

    socket = zmq.Context.instance().socket(zmq.PUB)
    socket.setsockopt(zmq.SNDHWM, 10_000)
    socket.connect(ZMQ_ADDRESS.format(port=port))
    time.sleep(0.3)
    start_s, sent = time.monotonic(), 0
    while time.monotonic() - start_s < seconds:
        for _ in range(BURST):
            socket.send(b"0001" + bytes(60) + VALUE)
        sent += BURST
        ahead_s = sent / rate - (time.monotonic() - start_s)
        if ahead_s > 0:
            time.sleep(ahead_s)
    socket.close(0)


def relay_by_zmq(seconds: float, rate: int) -> tuple[float, float, float]:
    """Take in by one SUB socket, hand out by inproc to those of a hundred that subscribe."""
    import zmq

    context, port = zmq.Context.instance(), 20_000 + secrets.randbelow(20_000)
    inbound = context.socket(zmq.SUB)
    inbound.bind(ZMQ_ADDRESS.format(port=port))
    inbound.subscribe(b"")
    inside = context.socket(zmq.PUB)
    inside.bind("inproc://components")
    components = []
    for place in range(COMPONENTS):
        component = context.socket(zmq.SUB)
        component.connect("inproc://components")
        component.subscribe(b"0001" if place < MATCHING else b"%04d" % (1000 + place))
        components.append(component)
    time.sleep(0.2)
    arguments = [str(port), str(seconds + 1), str(rate)]
    taken = handed = 0
    with subprocess.Popen([sys.executable, "-m", "benchmarks.relay", "--send-zmq", *arguments]):
        inbound.recv()
        start_s, used_s = time.monotonic(), time.process_time()
        while time.monotonic() - start_s < seconds:
            for _ in range(100):
                inside.send(inbound.recv())
            taken += 100
            for component in components[:MATCHING]:
                for _ in range(100):
                    try:
                        component.recv(zmq.NOBLOCK)
                    except zmq.Again:
                        break
                    handed += 1
        elapsed_s = time.monotonic() - start_s
        share = (time.process_time() - used_s) / elapsed_s
    context.destroy(0)
    return taken / elapsed_s, handed / elapsed_s, share


def main() -> None:
    """Send, or measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rate", type=int, default=200_000, help="frames a second that are sent")
    parser.add_argument("--send", nargs=5)
    parser.add_argument("--send-zmq", nargs=3)
    options = parser.parse_args()
    if options.send:
        domain, group, port, seconds, rate = options.send
        send(domain, group, int(port), float(seconds), int(rate))
        return
    if options.send_zmq:
        port, seconds, rate = options.send_zmq
        send_by_zmq(int(port), float(seconds), int(rate))
        return
    where = f"a gateway with {COMPONENTS} components, {MATCHING} of which match"
    print(heading("python -m benchmarks.relay", where, 1))
    for name, relay in (("hubbub", relay_by_hubbub), ("pyzmq", relay_by_zmq)):
        try:
            taken, handed, share = relay(options.seconds, options.rate)
        except ImportError as error:
            print(f"{name:8} not installed: {error}")
            continue
        print(
            f"{name:8} {taken:>10,.0f} frames/s in {handed:>12,.0f} hand-overs/s"
            f" {taken / share:>10,.0f} frames a second of processor time"
        )


if __name__ == "__main__":
    main()
