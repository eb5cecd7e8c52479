"""What this node declares: the patterns it wants, the subjects it publishes, and what changed.

Every change is one step of the version. So what changed between two versions is a slice of the list
of steps, slices may overlap, and who has some of one takes the rest of it (decision 0017). Grants
answer what is wanted, so the version of the interest is the one at which that changed last.
"""

from hubbub.limits import SCHEMA_NAME_BYTES_MAX, STEPS_MAX
from hubbub.protocol.requests import write_request
from hubbub.protocol.topics import OutgoingTopic
from hubbub.subjects import Handle, Matcher
from hubbub.wire.control import (
    PUBLISHES,
    PUBLISHES_NO_MORE,
    WANTS,
    WANTS_ANEW,
    WANTS_NO_MORE,
    Publication,
    Step,
)


class Interest:
    """What this node wants: patterns with counts, and the version at which their set changed."""

    def __init__(self) -> None:
        self.version = 1
        self.patterns: dict[str, int] = {}
        self.matcher: Matcher[None] = Matcher()
        self._handles: dict[str, object] = {}
        self.asks: Matcher[int] = Matcher()  # Our requests for history.
        self.last_request = 0
        self._requests: dict[int, tuple[str, Handle[int]]] = {}

    def ask(self, request: int, pattern: str, count: int) -> str:
        """Want so much of the history of what matches, too; return how others are told."""
        entry = write_request(request, count, pattern)
        self._requests[request] = entry, self.asks.add(pattern, request)
        self.last_request = max(self.last_request, request)
        self.patterns[entry] = 1
        return entry

    def withdraw(self, request: int) -> str:
        """Want history no longer; return how others were told."""
        entry, handle = self._requests.pop(request)
        self.asks.remove(handle)
        del self.patterns[entry]
        return entry

    def add(self, pattern: str) -> bool:
        """Count a pattern in; True if the set changed."""
        self.patterns[pattern] = self.patterns.get(pattern, 0) + 1
        if self.patterns[pattern] > 1:
            return False
        self._handles[pattern] = self.matcher.add(pattern, None)
        return True

    def remove(self, pattern: str) -> bool:
        """Count a pattern out; True if the set changed."""
        self.patterns[pattern] -= 1
        if self.patterns[pattern]:
            return False
        del self.patterns[pattern]
        self.matcher.remove(self._handles.pop(pattern))  # type: ignore[arg-type]
        return True

    def includes(self, subject: str) -> bool:
        """Tell whether any pattern matches."""
        return bool(self.matcher.match(subject))


class State:
    """The declared state of this node, and the steps that others may not know yet."""

    def __init__(self) -> None:
        self.version = 1
        self.interest = Interest()
        self.topics: dict[str, OutgoingTopic] = {}  # Those that somebody publishes, by subject.
        self._steps: list[Step] = []

    @property
    def base(self) -> int:
        """Return the version from which on the steps are known."""
        return self.version - len(self._steps)

    def want(self, pattern: str) -> bool:
        """Count a pattern in; True if that is news to others."""
        is_news = self.interest.add(pattern)
        if is_news:
            self._change_interest(Step(WANTS, pattern))
        return is_news

    def want_no_more(self, pattern: str) -> bool:
        """Count a pattern out; True if that is news to others."""
        is_news = self.interest.remove(pattern)
        if is_news:
            self._change_interest(Step(WANTS_NO_MORE, pattern))
        return is_news

    def ask(self, request: int, pattern: str, count: int) -> None:
        """Want so much of the history of what matches, too; 0: all that is kept."""
        self._change_interest(Step(WANTS, self.interest.ask(request, pattern, count)))

    def withdraw(self, request: int) -> None:
        """Want history no longer."""
        self._change_interest(Step(WANTS_NO_MORE, self.interest.withdraw(request)))

    def want_anew(self) -> None:
        """Let others grant again what is wanted as before."""
        self._change_interest(Step(WANTS_ANEW))

    def publish(self, topic: OutgoingTopic) -> None:
        """Declare a topic."""
        self.topics[topic.subject] = topic
        one = describe(topic)
        self._change(
            Step(PUBLISHES, one.subject, one.stream, one.schema_name, one.schema_hash, one.sequence)
        )

    def publish_no_more(self, topic: OutgoingTopic) -> None:
        """Declare a topic no more."""
        del self.topics[topic.subject]
        self._change(Step(PUBLISHES_NO_MORE, topic.subject))

    def between(self, base: int, version: int) -> list[Step]:
        """Return the steps from one version to another."""
        assert self.base <= base <= version <= self.version
        return self._steps[base - self.base : version - self.base]

    def forget(self, version: int) -> None:
        """Forget the steps up to a version: all others know them, or have to ask."""
        del self._steps[: max(version - self.base, 0)]

    def _change_interest(self, step: Step) -> None:
        self._change(step)
        self.interest.version = self.version

    def _change(self, step: Step) -> None:
        self.version += 1
        self._steps.append(step)
        if len(self._steps) > STEPS_MAX:
            del self._steps[: STEPS_MAX // 2]


def describe(topic: OutgoingTopic) -> Publication:
    """Say of a topic what others are told before they get anything of it."""
    name = topic.schema_name.encode()[:SCHEMA_NAME_BYTES_MAX].decode(errors="ignore")
    return Publication(
        topic.subject, topic.stream, name, topic.schema_hash, topic.next_sequence - 1
    )
