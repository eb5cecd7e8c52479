"""What a recorder makes of samples: by which names they are kept, and of whom."""

from types import SimpleNamespace
from typing import Any

from hubbub.limits import MS, SECOND
from hubbub.message import Source
from hubbub.protocol.delivery import Delivery
from hubbub.protocol.timetrigger.clock import SlotClock
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
        self.clock = SlotClock()
        self.endpoint = SimpleNamespace(wall_offset_ns=T - 1000)


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


def test_sample_says_how_far_the_clock_of_its_tick_is_ahead_and_how_wrong_it_may_be() -> None:
    gateway, intake = Names(), Intake(1 << 20)
    look = _Look(gateway, ("/...",), intake)  # type: ignore[arg-type]
    for error_ns in (None, 25):
        gateway.clock.discipline(0, T, error_ns)
        look.take(sample(20))
    clocks = [(one.link.clock_offset_ns, one.link.clock_error_ns) for one in taken(intake)]
    assert clocks == [(1000, -1), (1000, 25)]


def test_plain_subjects_are_observed_alone() -> None:
    assert _types_of(["/vehicle/speed"]) == {1: "/vehicle/speed"}
    assert _types_of(["/vehicle/speed", "/*"]) == {0: "/..."}
