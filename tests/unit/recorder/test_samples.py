"""What a recorder makes of samples: by which names they are kept, and of whom."""

from typing import Any

from hubbub.limits import MS, SECOND
from hubbub.message import Source
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.timetrigger.passing import Sample
from hubbub.recorder.intake import Intake
from hubbub.recorder.samples import _Look, _types_of
from hubbub.wire.timed import Response, make_origin

T = 1_700_000_000 * SECOND
NODE = b"n" * 12
SOURCE = Source("maker", NODE, 8)


def sample(tick_ms: int, *, port: int = 2, type: int = 1) -> Sample:
    tick_ns = T + tick_ms * MS
    response = Response(
        make_origin(NODE, port), 0, type, 1, 0, 0, tick_ms + 1, tick_ns, tick_ns + 5, 20_000, b"x"
    )
    return Sample(response, SOURCE, tick_ns + MS, "multicast", [])


class Names:
    """What a look needs of a gateway: how others call types."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}


def taken(intake: Intake) -> list[Any]:
    return [one for one in intake.take(1 << 20).items if isinstance(one, Delivery)]


def test_samples_go_by_their_names_as_soon_as_somebody_tells_them() -> None:
    gateway, intake = Names(), Intake(1 << 20)
    look = _Look(gateway, ("/own/...",), intake)  # type: ignore[arg-type]
    look.take(sample(0, type=98_765))
    gateway.names[98_765] = "/own/rpm"
    look.take(sample(20, type=98_765))
    look.take(sample(40, type=1))
    assert [one.topic.subject for one in taken(intake)] == ["/own/rpm"]


def test_second_producer_of_a_type_at_one_node_is_a_topic_of_its_own() -> None:
    intake = Intake(1 << 20)
    look = _Look(Names(), ("/...",), intake)  # type: ignore[arg-type]
    for port in (2, 3, 2, 3):
        look.take(sample(20 * port, port=port))
    sources = [one.topic.source for one in taken(intake)]
    assert sources[0] == sources[2] == SOURCE
    assert sources[1] == sources[3] == Source("maker", NODE, 8 ^ 3)


def test_plain_subjects_are_observed_alone() -> None:
    assert _types_of(["/vehicle/speed"]) == {1: "/vehicle/speed"}
    assert _types_of(["/vehicle/speed", "/*"]) == {0: "/..."}
