"""Subscriptions of a node to a service that wait for the value which the service keeps.

Its manager sends it to a node that is new, and again if the node asks for it. Meanwhile messages go
on coming, and the value may be one of them: then its number is not below theirs, and who has had
them does not get it a second time.
"""

from math import inf
from time import monotonic
from typing import Final

from hubbub.subscription import Subscription

_PATIENCE_S: Final = 10.0  # Where messages come, and no value, nothing is kept.


class Newcomers:
    """Those of one service."""

    def __init__(self) -> None:
        self.waiting: dict[Subscription, tuple[float, float]] = {}  # First number, and since when.

    def add(self, subscription: Subscription) -> None:
        """Let a subscription wait for the value."""
        self.waiting[subscription] = (inf, monotonic())

    def discard(self, subscription: Subscription) -> None:
        """Let it wait no more."""
        self.waiting.pop(subscription, None)

    def note(self, order: int) -> None:
        """Note the number of a message that all have; one of the first version has none."""
        now_s = monotonic()
        for subscription, (first, since_s) in list(self.waiting.items()):
            if now_s - since_s > _PATIENCE_S:
                self.discard(subscription)
            elif order:
                self.waiting[subscription] = (min(first, order), since_s)

    def take(self, order: int) -> list[Subscription]:
        """Return who is to have the value, which has this number; nobody waits for it any more."""
        waiting = [(one, self.waiting.pop(one, (0.0, 0.0))[0]) for one in list(self.waiting)]
        return [subscription for subscription, first in waiting if order < first]
