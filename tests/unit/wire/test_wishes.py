"""Links as numbers, names with links, and the streams that keep to them."""

from itertools import permutations

import pytest

from hubbub.wire.header import BEST_EFFORT, RELIABLE, STREAMS
from hubbub.wire.wishes import (
    ALL_RELIABLES,
    BY_DATAGRAM,
    LINKS_OF,
    Links,
    class_of,
    combine,
    decode_links,
    encode_links,
    framed,
    may_hand_over,
    name_by,
    name_by_any,
    read_name,
    stream_by,
)

NAMES = ("inproc", "local", "multicast", "tcp", "datagram")
LISTS = [links for count in range(6) for links in permutations(NAMES, count)]


@pytest.mark.parametrize("links", LISTS, ids="/".join)
def test_list_is_read_back_in_its_order(links: Links) -> None:
    assert decode_links(encode_links(links)) == links
    if links:
        assert read_name(name_by("/a/*", links)) == (links, "/a/*")


def test_links_that_are_to_come_are_kept_apart_and_never_taken_for_any() -> None:
    links = decode_links(6)
    assert links and links not in LISTS
    assert combine(links, ("local",)) == ()
    assert decode_links(0xFFFF) == ("link7", "inproc"), "what is there twice counts once"


@pytest.mark.parametrize("name", ["/a", "@", "@ /a", "@x /a", "@-1 /a", "@123456 /a", "@1_0 /a"])
def test_what_is_no_name_with_links_is_a_plain_one(name: str) -> None:
    assert read_name(name) is None


def test_any_link_is_named_beside_others() -> None:
    assert read_name(name_by_any("/a")) == ((), "/a")
    assert name_by("/a", ()) == "/a"


@pytest.mark.parametrize(
    ("published", "wanted", "common"),
    [
        ((), (), ()),
        (("tcp", "local"), (), ("tcp", "local")),
        ((), ("tcp", "local"), ("tcp", "local")),
        (("tcp", "local"), ("local", "multicast", "tcp"), ("tcp", "local")),
        (("tcp",), ("local",), ()),
    ],
)
def test_order_is_the_publishers_if_it_has_one(
    published: Links, wanted: Links, common: Links
) -> None:
    assert combine(published, wanted) == common


def test_nodes_of_a_process_hand_over_what_nobody_forbids() -> None:
    assert may_hand_over((), ()) and may_hand_over(("inproc", "tcp"), ())
    assert not may_hand_over(("tcp",), ()) and not may_hand_over((), ("local",))
    assert not may_hand_over(("inproc",), ("tcp",)), "nothing in common is not any link"


def test_each_list_has_streams_of_its_own() -> None:
    assert len(LINKS_OF) == 15 + 64 and not LINKS_OF.keys() & set(STREAMS)
    for stream, links in LINKS_OF.items():
        assert stream == stream_by(class_of(stream), links)
        assert (stream in ALL_RELIABLES) == (class_of(stream) == RELIABLE)
    assert stream_by(RELIABLE, ("tcp", "multicast")) == 4096 + 28
    assert stream_by(BEST_EFFORT, ("local",)) == 8192 + 2


def test_datagrams_are_of_best_effort_alone() -> None:
    links = ("inproc", "datagram", "tcp")
    assert framed(links, BEST_EFFORT) == ("datagram", "tcp") and framed(links, RELIABLE) == ("tcp",)
    assert {stream for stream, one in LINKS_OF.items() if "datagram" in one} == BY_DATAGRAM
    assert len(BY_DATAGRAM) == 64 - 15 and not BY_DATAGRAM & ALL_RELIABLES
    assert stream_by(BEST_EFFORT, ("datagram", "tcp")) == 8192 + 5 + 8 * 4
