"""The ways that frames take: pipes of this host, then TCP, then the group, and whom that misses."""

import pytest

from hubbub.protocol.burst import ChosenPipes, FarPipes, GroupAndPipes, Pipes
from hubbub.protocol.delivery import LOCAL, MULTICAST, TCP
from hubbub.protocol.ways import Ways
from hubbub.wire.header import BEST_EFFORT, HEARTBEAT, RELIABLE
from tests.harness import Lan

A, B, C, D = (bytes([number]) * 20 for number in (1, 2, 3, 4))


def ways(near: bytes = b"", far: tuple[bytes, ...] = (), grouped: tuple[bytes, ...] = ()) -> Ways:
    made = Ways()
    if near:
        made.open(near, LOCAL, "")
    for key in far:
        made.open(key, TCP, f"10.0.0.{key[0]}:7266")
    made.grouped = frozenset(grouped)
    return made


@pytest.mark.parametrize(
    ("made", "receivers", "kind", "keys"),
    [
        (ways(near=A), [], type(None), []),
        (ways(near=A), [A], Pipes, [A]),
        (ways(near=A), [A, B], type(None), []),
        (ways(near=A, far=(B,)), [A, B], FarPipes, [A, B]),
        (ways(far=(B, C), grouped=(B, C)), [B], FarPipes, [B]),
        (ways(far=(B, C), grouped=(B, C)), [B, C], type(None), []),
        (ways(far=(B, C), grouped=(B,)), [B, C], GroupAndPipes, [C]),
        (ways(far=(B, C)), [B, C], FarPipes, [B, C]),
        (ways(far=(B, C)), [B, C, D], GroupAndPipes, [B, C]),
        (ways(far=(B,), grouped=(B,)), [B, D], type(None), []),
    ],
)
def test_way_of_a_stream_is_the_cheapest_that_reaches_all(
    made: Ways, receivers: list[bytes], kind: type, keys: list[bytes]
) -> None:
    route = made.route(receivers, ())
    assert type(route) is kind and list(route or ()) == keys


def test_without_a_group_all_go_by_pipes() -> None:
    made = ways(far=(B, C), grouped=(B, C))
    made.has_group = False
    made.open(A, LOCAL, "")
    assert made.route([A, B, C], ()) == FarPipes((A, B, C)) and made.everybody is None
    assert made.route([A, D], ()) is None, "the shell sends to everybody there is"


def test_who_is_behind_is_passed_by_unless_it_is_alone() -> None:
    made = ways(near=A, far=(B,))
    assert made.route([A, B], {A}) == FarPipes((B,))
    assert made.route([A], {A}) == Pipes((A,))


@pytest.mark.parametrize("order", [(LOCAL, TCP), (TCP, LOCAL)])
def test_pipe_of_this_host_is_used_while_it_lasts_and_then_the_other(
    order: tuple[str, ...],
) -> None:
    made = Ways()
    for link in order:
        best = made.open(A, link, "here")
    assert best.link == LOCAL and made.everybody is None
    assert made.close(A, LOCAL) == FarPipes((A,)) == made.best[A]
    assert made.everybody == GroupAndPipes((A,))
    assert made.close(A, TCP) is None and made.best == {} and made.everybody is None


def test_end_of_the_worse_pipe_changes_nothing_and_the_end_of_a_node_ends_both() -> None:
    made = Ways()
    made.open(A, LOCAL, "")
    made.open(A, TCP, "")
    assert made.close(A, TCP) is made.best[A] and made.best[A].is_near
    made.open(A, TCP, "")
    made.bury(A)
    assert made.best == {} and made.close(A, LOCAL) is None


def test_control_frames_for_all_go_to_the_group_and_to_those_connected_from_afar() -> None:
    lan = Lan(1)
    (subscriber,) = lan.open(1)
    core = lan.nodes[0].core
    core.open_pipe(lan.now, subscriber.key, link=TCP, place="10.0.0.7:7266")
    core.endpoint.control.clear()
    core.endpoint.send(None, HEARTBEAT, 0, b"")
    [burst] = core.endpoint.control
    assert burst.destination == GroupAndPipes((subscriber.key,))
    assert core.peers[subscriber.key].link == TCP


def test_peer_is_taken_to_hear_the_group_while_it_is_heard_there() -> None:
    lan = Lan(1)
    one, other = lan.open(2)
    core = lan.nodes[0].core
    core.publish_on(lan.now, "/a")
    framer = core.outgoing.reliable.framer
    for node in (one, other):
        core.open_pipe(lan.now, node.key, link=TCP)
    assert framer.route is None, "both hear it, so it is the cheaper way"
    lan.run(2_000_000_000)
    assert framer.route is None and core.peers[one.key].place.startswith("10.")
    core.peers[one.key].grouped_ns = None
    core.advance(core.membership.sweep_ns)
    assert framer.route == GroupAndPipes((one.key,))
    assert core.endpoint.link == MULTICAST


def test_ways_of_different_kinds_to_the_same_nodes_are_not_the_same() -> None:
    kinds = (Pipes, FarPipes, GroupAndPipes)
    assert len({kind((A,)) for kind in kinds for _ in range(2)}) == len(kinds)
    assert Pipes((A,)) == Pipes((A,)) and Pipes((A,)) != Pipes((B,))
    assert ChosenPipes([A]) == ChosenPipes([A]) and ChosenPipes([A]) != ChosenPipes(far=[A])
    assert FarPipes((A,)) != ChosenPipes(far=[A]) != FarPipes((A,))


def test_ends_of_streams_are_told_by_the_way_of_each() -> None:
    outgoing = Lan(1).nodes[0].core.outgoing
    ways_of = {RELIABLE: FarPipes((A,)), BEST_EFFORT: GroupAndPipes((A,))}
    for stream, way in ways_of.items():
        outgoing.senders[stream].framer.take_route(way)
    told = {tail.stream: way for way, tails in outgoing.tails().items() for tail in tails}
    assert {stream: type(told[stream]) for stream in ways_of} == {
        RELIABLE: FarPipes, BEST_EFFORT: GroupAndPipes,
    }  # fmt: skip


def test_place_of_a_peer_that_was_only_met_by_tcp_is_told() -> None:
    made = Ways()
    pipe = made.open(A, TCP, "10.0.0.7:7266")
    assert pipe.place == "10.0.0.7:7266" and Pipes((A,)).place == "this host"
