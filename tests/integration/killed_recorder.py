"""A process that forks recorders which are meant to be killed: each is there in milliseconds.

It reads one line for each, the store and a file, and answers with its process. A recorder publishes
to itself without a pause, and writes into the mapped file how far it has acknowledged: what it
wrote there is seen, whenever it is killed.
"""

import mmap
import os
import signal
import sys
from pathlib import Path
from struct import pack_into, unpack_from
from typing import NoReturn

import hubbub

SUBJECT = "/killed"


def record(store: str, told: str) -> NoReturn:
    """Record until we are killed."""
    with open(told, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 16)
    with (
        hubbub.open(domain=f"killed-{os.getpid()}", links=["local"], network=False) as node,
        hubbub.Recorder(
            node, "/...", store, convert=False, split_size=64 << 10, split_time=0.05
        ) as recorder,
    ):
        publisher = node.publisher(SUBJECT)
        while True:
            for _ in range(20):
                publisher.publish(os.urandom(os.urandom(1)[0]) + b";")
            pack_into("<QQ", memory, 0, recorder.acknowledged, os.getpid())


def acknowledged(told: Path) -> int:
    """Return how far the recorder of this file had come."""
    count: int = unpack_from("<Q", told.read_bytes())[0]
    return count


def main() -> None:
    """Fork a recorder for each line of input."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody waits for them.
    for line in sys.stdin:
        store, told = line.split()
        child = os.fork()
        if child == 0:
            record(store, told)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
