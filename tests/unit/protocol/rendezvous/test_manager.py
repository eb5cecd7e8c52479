"""What a manager does with requests: each once, only what is allowed, none that leaps too far."""

import pytest

from hubbub.limits import MS, SECOND
from hubbub.protocol.rendezvous.rendezvous import Options
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage
from hubbub.wire.services import ANSWERS, NO_LOCAL, REFUSED, TAKEN, UNAVAILABLE, service_key

NAME = "news"


def apart(town: Town, count: int) -> list[ServiceNode]:
    """Return some nodes that do not manage the service."""
    return [node for node in town.alive() if node is not town.closest(NAME)][:count]


def test_request_to_any_one_that_is_repeated_is_done_by_one_member() -> None:
    """Answers that took longer than 100 ms had each request done by two members."""
    town = Town(Stage(1))
    town.open_many(5)
    *members, asker = apart(town, 4)
    done: list[bytes] = []
    for node in members:
        node.subscribe(NAME, flags=ANSWERS)
        node.answer = lambda payload: (done.append(payload), payload)[1]
    town.settle([NAME])
    town.stage.faults(delay_ns=60 * MS)
    asked = [b"1", b"2", b"3"]
    for payload in asked:
        asker.request_any(NAME, payload)
        town.world.run_for(1 * SECOND)
    assert asker.machine.seat.counters["repeated"]
    assert done == asked
    assert [one.payload for one in asker.settled] == asked


def test_who_may_not_publish_does_not_reach_wildcards_of_a_service_without_subscribers() -> None:
    """Nobody asked the policy where there was no list, so what it refused came all the same."""
    outlaws: set[bytes] = set()
    judged: set[tuple[str, bytes, str]] = set()

    def policy(action: str, key: bytes, name: str, node: bytes, credentials: bytes) -> bool:
        judged.add((action, key, name))
        return not (action == "publish" and node in outlaws)

    town = Town(Stage(1), Options(policy=policy))
    town.open_many(5)
    outlaw, citizen, reader = apart(town, 3)
    outlaws.add(outlaw.id)
    reader.want_everywhere(["/..."])
    town.world.run_for(1 * SECOND)
    for node, payload in ((outlaw, b"forbidden"), (citizen, b"allowed")):
        node.publish(NAME, payload, subject="/plant/x")
        town.world.run_for(1 * SECOND)
    assert [one.delivered.payload for one in reader.heard[""]] == [b"allowed"]
    assert [one.status for one in outlaw.settled + citizen.settled] == [REFUSED, TAKEN]
    reader.want_everywhere([])
    town.world.run_for(1 * SECOND)
    wild = service_key("")
    assert judged == {
        *(("subscribe", wild, ""), ("unsubscribe", wild, "")),
        ("publish", service_key(NAME), ""),
    }


@pytest.mark.parametrize("subject", ["", "/plant/x"])
def test_publisher_that_wants_nothing_of_its_own_does_not_count_as_its_subscriber(
    subject: str,
) -> None:
    """It was told that its message went to one subscriber, which was itself, and had nothing."""
    town = Town(Stage(1))
    town.open_many(4)
    publisher, other = apart(town, 2)
    publisher.subscribe(NAME, flags=NO_LOCAL)
    town.settle([NAME])
    ends = []
    for change in (None, other.subscribe, other.unsubscribe):
        if change is not None:
            change(NAME)
            town.world.run_for(1 * SECOND)
        for node in (publisher, other):
            node.settled.clear()
            for number in range(3):  # The first goes the long way, the last ones the short way.
                node.publish(NAME, b"%d %d" % (len(ends), number), subject=subject)
                town.world.run_for(100 * MS)
            ends.append({(one.status, one.number) for one in node.settled})
    alone, together = [{(UNAVAILABLE, 0)}, {(TAKEN, 1)}], [{(TAKEN, 1)}, {(TAKEN, 2)}]
    assert ends == alone + together + alone
