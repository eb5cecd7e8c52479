"""From when to when the interests that reached a producer hold, reckoned apart from it.

Where as many renewals are lost in a row as a lease has, it ends, and its node is owed nothing until
the next one comes.
"""

from typing import TYPE_CHECKING

from hubbub.limits import MS

if TYPE_CHECKING:
    from hubbub.wire.timed import Interest

_MARGIN_NS = MS  # An interest is under way for less, and clocks differ by less in a lease.

Span = tuple[int, int]


class Leases:
    """The interests of all nodes in one producer."""

    def __init__(self) -> None:
        self._spans: dict[int, list[Span]] = {}  # By node, in order, apart from each other.

    def hear(self, now: int, node: int, interest: "Interest") -> None:
        """Note that an interest was sent that is not lost; one that is withdrawn just ends."""
        if not interest.wants:
            return
        spans = self._spans.setdefault(node, [])
        begin_ns = now + _MARGIN_NS
        if spans and begin_ns <= spans[-1][1]:
            begin_ns = spans.pop()[0]
        spans.append((begin_ns, now + interest.lease_ms * MS - _MARGIN_NS))

    def holds(self, node: int, begin_ns: int, end_ns: int) -> bool:
        """Tell whether a node is surely owed what is sent meanwhile; one never heard of, always."""
        spans = self._spans.get(node)
        return spans is None or any(one[0] <= begin_ns and end_ns <= one[1] for one in spans)
