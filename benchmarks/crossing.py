"""`python -m benchmarks.crossing`: messages that cross from one network to another by a process.

Three processes: one sends, one passes on, one receives and counts. Hubbub: a gateway between two
domains of this host. pyzmq: a proxy between an XSUB and an XPUB socket, which is C++ all the way.
Zenoh: a session in router mode between two clients. All are told to lose nothing. What is counted
are messages a second at the end, and for each second of processor time of who passes on.
"""

import argparse
import json
import resource
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.report import heading

SIZES = {64: 1_000_000, 65_536: 40_000}  # Half a second and more, once all is warm.
SUBJECT = "/crossing/x"
WARM_S = 1.0


def _report(received: int, size_bytes: int, start_s: float) -> None:
    elapsed_s = time.monotonic() - start_s
    print(json.dumps([received / elapsed_s, received * size_bytes / elapsed_s]), flush=True)


def _await_end() -> None:
    """Wait for the end of the input, then say what this process has cost meanwhile."""
    before_s = _used_s()
    print("ready", flush=True)
    sys.stdin.read()
    print(json.dumps(_used_s() - before_s), flush=True)


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def hubbub_joint(left: str, right: str) -> None:
    """Join two domains."""
    from hubbub.gateway import Gateway, Side

    sides = [Side(name, domain=name, interface="127.0.0.1") for name in (left, right)]
    with Gateway.open(sides, name="crossing"):
        _await_end()


def hubbub_sink(right: str, size_bytes: int, count: int) -> None:
    """Count what arrives, batch by batch."""
    import hubbub

    with hubbub.open(domain=right, interface="127.0.0.1") as node:
        received, start_s = 0, 0.0
        for batch in node.subscribe(SUBJECT, queue=count).batches():
            start_s = start_s or time.monotonic()
            received += len(batch)
            if received >= count:
                break
        _report(received, size_bytes, start_s)


def hubbub_source(left: str, size_bytes: int, count: int) -> None:
    """Publish as fast as it goes."""
    import hubbub

    with hubbub.open(domain=left, interface="127.0.0.1") as node:
        publisher = node.publisher(SUBJECT)
        publisher.wait_for_subscribers(1, timeout=30)
        time.sleep(WARM_S)
        payload = bytes(size_bytes)
        for _ in range(count):
            publisher.publish(payload)
        node.flush(timeout=60)


def _zmq_socket(kind: str, address: str, *, binds: bool = False) -> Any:
    import zmq

    opened = zmq.Context.instance().socket(getattr(zmq, kind))
    opened.set_hwm(0)  # Without a bound PUB drops nothing.
    (opened.bind if binds else opened.connect)(f"tcp://127.0.0.1:{address}")
    return opened


def pyzmq_joint(left: str, right: str) -> None:
    """Let the proxy of libzmq pass on."""
    import zmq

    inside = _zmq_socket("XSUB", left, binds=True)
    outside = _zmq_socket("XPUB", right, binds=True)
    threading.Thread(target=zmq.proxy, args=(inside, outside), daemon=True).start()
    _await_end()
    sys.stdout.flush()


def pyzmq_sink(right: str, size_bytes: int, count: int) -> None:
    """Count what arrives."""
    incoming = _zmq_socket("SUB", right)
    incoming.subscribe(b"")
    incoming.recv(copy=False)
    start_s = time.monotonic()
    for _ in range(count - 1):
        incoming.recv(copy=size_bytes < 1024)
    _report(count, size_bytes, start_s)


def pyzmq_source(left: str, size_bytes: int, count: int) -> None:
    """Send as fast as it goes."""
    outgoing = _zmq_socket("PUB", left)
    time.sleep(WARM_S + 1)
    payload = bytes(size_bytes)
    for _ in range(count):
        outgoing.send(payload, copy=size_bytes < 1024)
    outgoing.close()
    outgoing.context.term()


def _zenoh_session(mode: str, key: str, *ports: str) -> Any:
    import zenoh

    config = zenoh.Config()
    config.insert_json5("mode", json.dumps(mode))
    config.insert_json5(key, json.dumps([f"tcp/127.0.0.1:{port}" for port in ports]))
    config.insert_json5("scouting/multicast/enabled", "false")
    return zenoh.open(config)


def zenoh_joint(left: str, right: str) -> None:
    """Be a router."""
    session = _zenoh_session("router", "listen/endpoints", left, right)
    _await_end()
    session.close()


def zenoh_sink(right: str, size_bytes: int, count: int) -> None:
    """Count what arrives, on Zenoh's own thread."""
    session = _zenoh_session("client", "connect/endpoints", right)
    received, start_s, done = 0, 0.0, threading.Event()

    def on_sample(_: Any) -> None:
        nonlocal received, start_s
        start_s = start_s or time.monotonic()
        received += 1
        if received == count:
            done.set()

    session.declare_subscriber("crossing/x", on_sample)
    done.wait()
    _report(received, size_bytes, start_s)
    session.close()


def zenoh_source(left: str, size_bytes: int, count: int) -> None:
    """Put as fast as it goes."""
    import zenoh

    session = _zenoh_session("client", "connect/endpoints", left)
    publisher = session.declare_publisher(
        "crossing/x", congestion_control=zenoh.CongestionControl.BLOCK
    )
    time.sleep(WARM_S + 1)
    payload = bytes(size_bytes)
    for _ in range(count):
        publisher.put(payload)
    time.sleep(WARM_S)
    session.close()


ROLES: dict[str, Callable[..., None]] = {
    f"{peer}-{role}": globals()[f"{peer}_{role}"]
    for peer in ("hubbub", "pyzmq", "zenoh")
    for role in ("joint", "sink", "source")
}


def _start(role: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "benchmarks.crossing", "--role", role, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def cross(peer: str, size_bytes: int, count: int) -> tuple[float, float, float]:
    """Return messages and bytes a second, and messages for a second of processor time."""
    base = 20_000 + 2 * secrets.randbelow(10_000)
    places = (str(base), str(base + 1))
    if peer == "hubbub":
        places = (f"left-{secrets.token_hex(4)}", f"right-{secrets.token_hex(4)}")
    joint = _start(f"{peer}-joint", *places)
    assert joint.stdout is not None
    if joint.stdout.readline() != "ready\n":
        raise ImportError(f"{peer} does not run here")
    sink = _start(f"{peer}-sink", places[1], size_bytes, count)
    source = _start(f"{peer}-source", places[0], size_bytes, count)
    messages, size = json.loads(sink.communicate(timeout=120)[0])
    source.communicate(timeout=120)
    used_s = json.loads(joint.communicate(timeout=30)[0])
    return messages, size, count / used_s


def main() -> None:
    """Play one role, or measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--role", choices=ROLES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    if options.role:
        first, *rest = options.arguments
        is_joint = options.role.endswith("joint")
        ROLES[options.role](first, *(rest if is_joint else map(int, rest)))
        return
    print(heading("python -m benchmarks.crossing", "between two networks of one host", 1))
    for size_bytes, count in SIZES.items():
        for _ in range(options.rounds):
            for peer in ("hubbub", "pyzmq", "zenoh"):
                try:
                    messages, size, by_cpu = cross(peer, size_bytes, count)
                except (ImportError, ValueError) as error:
                    print(f"{peer:8} {size_bytes:>6} B  not measured: {error}")
                    continue
                print(
                    f"{peer:8} {size_bytes:>6} B {messages:>12,.0f} messages/s"
                    f" {size / 1e6:>8,.0f} MB/s {by_cpu:>12,.0f} for a second of processor time"
                )


if __name__ == "__main__":
    main()
