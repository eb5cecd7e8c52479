"""Over which links a router passes a frame on; the table is what RODOS's notes promise."""

import pytest

from hubbub.limits import HOP_LIMIT, ROUTE_AGE, ROUTED_MAX, ROUTES_MAX, SECOND
from hubbub.protocol.gateway.router import INTELLIGENT, SIMPLE, Crossing, Router
from hubbub.wire.header import MANY, NOBODY

LINKS = "abc"
BEHIND = {0: "a", 1: "b", 2: "b", 3: "c"}  # The index of a node, and the link it is behind.


def make_router(mode: str) -> Router[str]:
    router = Router(LINKS, mode=mode)
    for index, link in BEHIND.items():
        router.learn(0, index, link)
    return router


def frame(receiver: int, bitmap: int, *, hops: int = HOP_LIMIT, is_open: bool = False) -> Crossing:
    return Crossing(receiver, bitmap, hops, is_open)


# Frames for each link, of one frame that comes from link a.
TABLE = [
    # receiver, bitmap, simple, intelligent
    (NOBODY, 0b0000, "", ""),
    (0, 0b0001, "", ""),  # Who it is for is where it came from.
    (1, 0b0010, "b", "b"),
    (3, 0b1000, "c", "c"),
    (MANY, 0b0110, "bc", "b"),  # Both are behind b: one copy.
    (MANY, 0b1001, "bc", "c"),
    (MANY, 0b1010, "bc", "bc"),
    (MANY, 0b0001, "bc", ""),
    (MANY, 0b0000, "", ""),  # Bitmap 0 is nobody, whatever the receiver field says.
    (9, 1 << 9, "bc", "bc"),  # Nobody knows where 9 is.
    (MANY, 1 << 9 | 0b0010, "bc", "bc"),
]


@pytest.mark.parametrize("mode", [SIMPLE, INTELLIGENT])
@pytest.mark.parametrize(("receiver", "bitmap", "simple", "intelligent"), TABLE)
def test_frames_per_link(
    mode: str, receiver: int, bitmap: int, simple: str, intelligent: str
) -> None:
    router = make_router(mode)
    chosen = router.route(1, frame(receiver, bitmap), "a")
    wanted = simple if mode == SIMPLE else intelligent
    assert "".join(chosen) == wanted
    assert router.passed == dict.fromkeys(wanted, 1)


@pytest.mark.parametrize("mode", [SIMPLE, INTELLIGENT])
@pytest.mark.parametrize("link", LINKS)
def test_a_frame_for_all_never_goes_back(mode: str, link: str) -> None:
    chosen = make_router(mode).route(1, frame(MANY, 0b1111, is_open=True), link)
    assert set(chosen) == set(LINKS) - {link}


@pytest.mark.parametrize("mode", [SIMPLE, INTELLIGENT])
def test_receivers_beyond_the_bitmap_may_be_anywhere(mode: str) -> None:
    assert make_router(mode).route(1, frame(MANY, 0, is_open=True), "a") == ("b", "c")


def test_a_frame_without_hops_goes_nowhere_and_is_counted() -> None:
    router = make_router(SIMPLE)
    assert router.route(1, frame(MANY, 2, hops=0), "a") == ()
    assert router.route(1, frame(MANY, 2, hops=1), "a") == ("b", "c")
    assert router.drops == {"hops": 1}


def test_a_frame_is_new_once_by_whichever_way_it_comes() -> None:
    """By a clock, as RODOS does it, the second and the third would be taken for old ones."""
    router = make_router(INTELLIGENT)
    frames = [(b"origin", 7, 5), (b"origin", 7, 4), (b"origin", 8, 5)]
    assert [router.is_new(one) for one in frames] == [True] * 3
    assert [router.is_new(one) for one in frames] == [False] * 3


def test_memory_of_frames_is_bounded() -> None:
    router = make_router(INTELLIGENT)
    assert all(router.is_new(number) for number in range(ROUTED_MAX + 1))
    assert router.is_new(0) and not router.is_new(2)


def test_a_node_that_moved_is_reached_where_it_was_heard_last() -> None:
    router = make_router(INTELLIGENT)
    router.learn(1, 3, "b")
    assert router.route(2, frame(3, 8), "a") == ("b",)


def test_a_silent_node_may_be_anywhere_again() -> None:
    router = make_router(INTELLIGENT)
    router.learn(SECOND, 3, "c")
    assert router.route(ROUTE_AGE + SECOND, frame(3, 8), "a") == ("c",)
    assert set(router.routes) == {3}
    assert router.route(ROUTE_AGE + SECOND + 1, frame(3, 8), "a") == ("b", "c")


def test_a_node_that_left_is_forgotten_at_once() -> None:
    router = make_router(SIMPLE)
    router.forget(3)
    assert router.route(1, frame(3, 8), "a") == ("b", "c")


def test_the_table_of_routes_is_bounded() -> None:
    router = Router(LINKS)
    for index in range(ROUTES_MAX + 10):
        router.learn(index, index, "a")
    assert len(router.routes) == ROUTES_MAX
    assert 9 not in router.routes and 10 in router.routes
