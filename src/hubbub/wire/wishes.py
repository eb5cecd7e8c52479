"""Links that somebody insists on, as a number, and the streams that keep to them.

A list of links, the preferred one first, is a number of three bits a link, the first one lowest; 0
is no list: any link will do. A stream that keeps to a list has a number made of its class and the
links that frames take, so whoever is granted it knows by which links it comes (decision 0041).
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import permutations
from typing import Final

from hubbub.wire.header import BEST_EFFORT, CLASS_OF, RELIABLE, RELIABLES, STREAMS

Links = tuple[str, ...]

INPROC: Final = "inproc"
DATAGRAM: Final = "datagram"
_NAMES: Final = (INPROC, "local", "multicast", "tcp", DATAGRAM, "link6", "link7")  # Two to come.
# Datagrams are not repaired, so nothing reliable takes them (decision 0051).
_REPAIRED: Final = ("local", "multicast", "tcp")
_OF_FRAMES: Final = {RELIABLE: _REPAIRED, BEST_EFFORT: (*_REPAIRED, DATAGRAM)}
_NUMBERS: Final = {name: number for number, name in enumerate(_NAMES, 1)}
_BITS: Final = 3
_MARK: Final = "@"
_CODE: Final = re.compile(r"@[0-9]{1,5}")
_FIRST_STREAM: Final = {RELIABLE: 0x1000, BEST_EFFORT: 0x2000}


def encode_links(links: Iterable[str]) -> int:
    """Return the number of a list of links; names that are none of ours are left out."""
    known = [_NUMBERS[link] for link in links if link in _NUMBERS]
    return sum(number << _BITS * place for place, number in enumerate(known))


@lru_cache(1024)
def decode_links(code: int) -> Links:
    """Return the list of links that a number stands for; what is none, or twice, is left out."""
    links: dict[str, None] = {}
    while code:
        number = code & (1 << _BITS) - 1
        if 0 < number <= len(_NAMES):
            links[_NAMES[number - 1]] = None
        code >>= _BITS
    return tuple(links)


def name_by(subject: str, links: Links) -> str:
    """Name a subject, or a pattern, with the links it is wanted by; without any, as it is.

    No pattern begins like this, so who does not know of links takes it for a malformed one.
    """
    return f"{_MARK}{encode_links(links)} {subject}" if links else subject


def read_name(name: str) -> tuple[Links, str] | None:
    """Return the links and the subject, or pattern, of such a name; None: it is a plain one.

    Without links it is wanted by any, too.
    """
    code, _, subject = name.partition(" ")
    if not name.startswith(_MARK) or not _CODE.fullmatch(code):
        return None
    return decode_links(int(code[1:])), subject


def name_by_any(pattern: str) -> str:
    """Name a pattern that is wanted by any link, beside its names with links."""
    return f"{_MARK}0 {pattern}"


def framed(links: Links, cls: int) -> Links:
    """Return the links that frames of a class take: nodes of one process hand messages over."""
    return tuple(link for link in links if link in _OF_FRAMES[cls])


def combine(published: Links, wanted: Links) -> Links:
    """Return the links that both a publisher and a subscription allow; () allows any to either.

    The order is the publisher's if it has one.
    """
    if not published or not wanted:
        return published or wanted
    return tuple(link for link in published if link in wanted)


def may_hand_over(published: Links, wanted: Links) -> bool:
    """Tell whether nodes of one process may hand over what is published and wanted like this."""
    links = combine(published, wanted)
    return INPROC in links or not (published or wanted)


def stream_by(cls: int, links: Links) -> int:
    """Return the stream of a class that keeps to these links."""
    return _FIRST_STREAM[cls] + encode_links(links)


_LISTS: Final = [
    (cls, links)
    for cls, names in _OF_FRAMES.items()
    for count in range(1, len(names) + 1)
    for links in permutations(names, count)
]
LINKS_OF: Final = {stream_by(cls, links): links for cls, links in _LISTS}
BY_DATAGRAM: Final = frozenset(stream for stream, one in LINKS_OF.items() if DATAGRAM in one)
_CLASS_OF: Final = CLASS_OF | {stream_by(cls, links): cls for cls, links in _LISTS}
ALL_STREAMS: Final = frozenset((*STREAMS, *LINKS_OF))
ALL_RELIABLES: Final = frozenset(
    (*RELIABLES, *(stream for stream in LINKS_OF if _CLASS_OF[stream] == RELIABLE))
)


def class_of(stream: int) -> int:
    """Return the class of a stream that is one."""
    return _CLASS_OF[stream]
