"""What a manager does with requests: each once, only what is allowed, none that leaps too far."""

from hubbub.limits import MS, SECOND
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage
from hubbub.wire.services import ANSWERS

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
