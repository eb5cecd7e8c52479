"""Numbers under which nothing comes, because the policy refused what had them.

Who keeps the order of a publisher would wait for such a message as for one that is lost. So the
next message that is sent on says how many before it were refused. Only the manager can say so in
time: the publisher has sent more before it hears of it.
"""

from hubbub.limits import SEEN_PUBLISHERS_MAX, SERVICE_LEASE_MS_MAX
from hubbub.protocol.rendezvous.seen import Origin


class Refusals:
    """The last run of numbers of each publisher that were refused, until somebody is told."""

    def __init__(self) -> None:
        self._runs: dict[Origin, tuple[int, int]] = {}  # The first number, and how many.

    def __len__(self) -> int:
        return len(self._runs)

    def note(self, origin: Origin, first: int, count: int) -> None:
        """Note messages that were refused; those that come again are known."""
        begin, known = self._runs.pop(origin, (first, 0))
        if not begin <= first <= begin + known:
            begin, known = first, 0
        known = max(known, first - begin + count)
        self._runs[origin] = (begin, min(known, SERVICE_LEASE_MS_MAX))  # As the field holds.
        if len(self._runs) > SEEN_PUBLISHERS_MAX:
            del self._runs[next(iter(self._runs))]

    def take_before(self, origin: Origin, number: int) -> int:
        """Return how many messages right before one were refused, once."""
        begin, count = self._runs.get(origin, (number, 0))
        if begin + count != number:
            return 0
        self._runs.pop(origin, None)
        return count
