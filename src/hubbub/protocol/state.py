"""What this node declares: the patterns it wants, the subjects it publishes, and what changed.

Every change is one step of the version. So what changed between two versions is a slice of the list
of steps, slices may overlap, and who has some of one takes the rest of it (decision 0017). Grants
answer what is wanted, so the version of the interest is the one at which that changed last.
"""

from hubbub.limits import SCHEMA_NAME_BYTES_MAX, STEPS_MAX
from hubbub.protocol.requests import Asks, write_request
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
from hubbub.wire.header import BEST_EFFORT, RELIABLE
from hubbub.wire.wishes import Links, encode_links, name_by, name_by_any, read_name


class Interest:
    """What this node wants: patterns with counts, and the version at which their set changed."""

    def __init__(self) -> None:
        self.version = 1
        self.anew_version = 0  # When all was last to be granted anew.
        self.patterns: dict[str, int] = {}
        self.matcher: Matcher[int] = Matcher()  # Since which version each is wanted.
        self.wishes: dict[Links, Matcher[None]] = {(): Matcher()}  # The same by what it insists on.
        self._handles: dict[str, object] = {}
        self._wanted: dict[str, dict[Links, int]] = {}  # How often a pattern is wanted by what.
        self._wished: dict[tuple[str, Links], Handle[None]] = {}
        self.asks = Asks()  # Our requests for history.
        self.last_request = 0
        self._requests: dict[int, tuple[str, tuple[Links, Handle[int]]]] = {}

    def ask(self, request: int, pattern: str, count: int, links: Links = ()) -> str:
        """Want so much of the history of what matches, too; return how others are told."""
        name = name_by(pattern, links)
        entry = write_request(request, count, name)
        self._requests[request] = entry, self.asks.add(name, request)
        self.last_request = max(self.last_request, request)
        self.patterns[entry] = 1
        return entry

    def withdraw(self, request: int) -> str:
        """Want history no longer; return how others were told."""
        entry, place = self._requests.pop(request)
        self.asks.remove(place)
        del self.patterns[entry]
        return entry

    def add(self, pattern: str, links: Links = ()) -> list[str]:
        """Count a pattern in; return what is news to others, in the order they must hear it.

        Who knows nothing of links goes by the plain pattern. All others hear by which links it is
        wanted before they hear that, so that nothing goes by any other meanwhile.
        """
        counts = self._wanted.setdefault(pattern, {})
        counts[links] = counts.get(links, 0) + 1
        if counts[links] > 1:
            return []
        self._wished[pattern, links] = self.wishes.setdefault(links, Matcher()).add(pattern, None)
        if len(counts) == 1:
            self._handles[pattern] = self.matcher.add(pattern, self.version)
            entries = [name_by(pattern, links), pattern] if links else [pattern]
        else:
            # So far the plain pattern alone said that it is wanted by any.
            is_first = len(counts) == 2 and () in counts
            by_any = [name_by_any(pattern)] if is_first or not links else []
            entries = [*by_any, name_by(pattern, links)] if links else by_any
        self.patterns |= dict.fromkeys(entries, 1)
        return entries

    def remove(self, pattern: str, links: Links = ()) -> list[str]:
        """Count a pattern out; return what is news to others."""
        counts = self._wanted[pattern]
        counts[links] -= 1
        if counts[links]:
            return []
        del counts[links]
        self.wishes[links].remove(self._wished.pop((pattern, links)))
        if links and not any(other == links for _, other in self._wished):
            del self.wishes[links]
        own = name_by(pattern, links) if links else name_by_any(pattern)
        if not counts:
            del self._wanted[pattern]
            self.matcher.remove(self._handles.pop(pattern))  # type: ignore[arg-type]
            entries = [pattern, own] if links else [pattern]
        else:
            entries = [own, name_by_any(pattern)] if [*counts] == [()] else [own]
        for entry in entries:
            del self.patterns[entry]
        return entries

    def has_included(self, subject: str, version: int) -> bool:
        """Tell whether a subject has been wanted ever since a version, by the same pattern."""
        if version < self.anew_version:
            return False
        return any(since <= version for since in self.matcher.match(subject))

    def includes(self, subject: str) -> bool:
        """Tell whether any pattern matches."""
        return bool(self.matcher.match(subject))

    def includes_by(self, name: str) -> bool:
        """Tell whether a pattern matches that is wanted by just the links of a name."""
        links, subject = read_name(name) or ((), name)
        matcher = self.wishes.get(links)
        return matcher is not None and bool(matcher.match(subject))


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

    def want(self, pattern: str, links: Links = ()) -> bool:
        """Count a pattern in, by these links; True if that is news to others."""
        entries = self.interest.add(pattern, links)
        for entry in entries:
            self._change_interest(Step(WANTS, entry))
        self._note_links(links)
        return bool(entries)

    def want_no_more(self, pattern: str, links: Links = ()) -> bool:
        """Count a pattern out; True if that is news to others."""
        entries = self.interest.remove(pattern, links)
        for entry in entries:
            self._change_interest(Step(WANTS_NO_MORE, entry))
        self._note_links(links)
        return bool(entries)

    def ask(self, request: int, pattern: str, count: int, links: Links = ()) -> None:
        """Want so much of the history of what matches, too, by these links; 0: all that is kept."""
        self._change_interest(Step(WANTS, self.interest.ask(request, pattern, count, links)))

    def withdraw(self, request: int) -> None:
        """Want history no longer."""
        self._change_interest(Step(WANTS_NO_MORE, self.interest.withdraw(request)))

    def want_anew(self) -> None:
        """Let others grant again what is wanted as before."""
        self._change_interest(Step(WANTS_ANEW))
        self.interest.anew_version = self.version

    def publish(self, topic: OutgoingTopic) -> None:
        """Declare a topic."""
        self.topics[topic.subject] = topic
        one = describe(topic)
        self._change(
            Step(
                PUBLISHES, one.subject, one.stream, one.schema_name, one.schema_hash, one.sequence,
                one.links,
            )
        )  # fmt: skip

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

    def _note_links(self, links: Links) -> None:
        """Trust no older grant where somebody insists on links: those say what it comes by."""
        if links:
            self.interest.anew_version = self.interest.version

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
        topic.subject, RELIABLE if topic.is_reliable else BEST_EFFORT, name, topic.schema_hash,
        topic.next_sequence - 1, encode_links(topic.links),
    )  # fmt: skip
