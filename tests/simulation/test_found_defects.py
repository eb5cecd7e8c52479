"""What the simulator found, each defect as the few datagrams that show it."""

from random import Random

from hubbub.message import Source
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.reassembly import Budget
from hubbub.protocol.receiver import Receiver
from hubbub.wire import batch
from hubbub.wire.control import Topic
from hubbub.wire.header import RELIABLE

SOURCE = Source("a", bytes(12), 1)


def make_receiver(budget_bytes: int = 1 << 20, **topics: str) -> Receiver:
    receiver = Receiver(RELIABLE, SOURCE, 1, Random(1), 0, Budget(budget_bytes), lambda _: True)
    for place, subject in enumerate(topics.values() or ["/a"]):
        receiver.declare(Topic(16 + place, RELIABLE, subject, 1))
    return receiver


def accept(receiver: Receiver, sequence: int, runs: list[batch.Run]) -> list[Delivery]:
    out: list[Delivery] = []
    payloads = [b"x"] * sum(count for _, _, count in runs)
    body = batch.encode(runs, payloads, [0] * len(payloads))
    receiver.accept_data(0, sequence, 0, body, 0, len(body), 0, out)
    return out


def test_repaired_frame_with_two_runs_of_one_topic_leaves_no_hole_between_them() -> None:
    receiver = make_receiver(first="/a", second="/b")
    assert accept(receiver, 2, [(16, 3, 1)]) == []
    delivered = accept(receiver, 1, [(16, 1, 1), (17, 1, 1), (16, 2, 1)])
    assert [(d.topic.subject, d.first) for d in delivered] == [
        ("/a", 1), ("/b", 1), ("/a", 2), ("/a", 3),
    ]  # fmt: skip
    assert receiver.holes == []
