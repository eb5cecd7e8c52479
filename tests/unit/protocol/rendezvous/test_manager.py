"""What a manager does with requests: each once, only what is allowed, none that leaps too far."""

from hubbub.limits import MS, SECOND
from hubbub.protocol.rendezvous.rendezvous import Options
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage
from hubbub.wire.services import ANSWERS, REFUSED, TAKEN, service_key

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
