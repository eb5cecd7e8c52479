"""HOT. The subscription of a recorder: hands on whole runs, and makes no message of them."""

from typing import Any

from hubbub.limits import RECORDER_TOPICS_KEPT
from hubbub.protocol.delivery import Delivery
from hubbub.recorder.intake import Intake
from hubbub.subjects import matches
from hubbub.subscription import Host, Subscription


class Tap(Subscription):
    """Puts what matches any of several patterns into an intake, each message once.

    The context of each pattern is its place among them: where several match a subject, the first
    one takes it.
    """

    def __init__(self, host: Host, patterns: tuple[str, ...], intake: Intake) -> None:
        super().__init__(host)
        self._wanted = patterns
        self._intake = intake
        self._first_match: dict[str, int] = {}

    def deliver(self, delivery: Delivery, context: Any) -> None:
        """Take a run from the node."""
        if self._closed_reason is not None or not delivery.payloads:
            return
        subject = delivery.topic.subject
        first = self._first_match.get(subject)
        if first is None:
            first = self._look(subject)
        if first == context:
            with self._delivering:
                self._received += len(delivery.payloads)
                self._intake.put_run(delivery)

    def _look(self, subject: str) -> int:
        if len(self._first_match) >= RECORDER_TOPICS_KEPT:
            self._first_match.clear()
        first = next(at for at, pattern in enumerate(self._wanted) if matches(pattern, subject))
        self._first_match[subject] = first
        return first
