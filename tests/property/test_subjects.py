"""The matcher against the brute-force model, through any history of adding and removing."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from hubbub.errors import SubjectError
from hubbub.subjects import Handle, Matcher, check_pattern, check_subject, matches

# Few names and few levels, so that patterns and subjects meet often; the look-alikes of wildcards
# are names as any other.
NAMES = st.sampled_from(["a", "b", "a*", "...a", "**", "ü"])
SUBJECTS = st.lists(NAMES, min_size=1, max_size=5).map(lambda levels: "/" + "/".join(levels))
PATTERNS = st.builds(
    lambda levels, last: "/" + "/".join([*levels, last]),
    st.lists(NAMES | st.just("*"), max_size=4),
    NAMES | st.sampled_from(["*", "..."]),
)


class MatcherAgainstModel(RuleBasedStateMachine):
    """Add, remove and match at random; the model is a list and a loop."""

    handles: Bundle[Handle[int]] = Bundle("handles")

    def __init__(self) -> None:
        super().__init__()
        self.matcher: Matcher[int] = Matcher(cached_subjects_max=3)
        self.model: dict[Handle[int], None] = {}
        self.generations = {self.matcher.generation}

    @rule(target=handles, pattern=PATTERNS, value=st.integers(0, 3))
    def add(self, pattern: str, value: int) -> Handle[int]:
        handle = self.matcher.add(pattern, value)
        self.model[handle] = None
        self.expect_new_generation()
        return handle

    @rule(handle=consumes(handles))
    def remove(self, handle: Handle[int]) -> None:
        assert self.matcher.remove(handle)
        del self.model[handle]
        self.expect_new_generation()
        assert not self.matcher.remove(handle)

    @rule(subject=SUBJECTS)
    def match(self, subject: str) -> None:
        expected = tuple(h.value for h in self.model if matches(h.pattern, subject))
        assert self.matcher.match(subject) == expected
        assert self.matcher.match(subject) == expected

    @invariant()
    def answers_what_was_asked_before_anew_after_every_change(self) -> None:
        self.match("/a")
        self.match("/a/b")

    @invariant()
    def holds_no_node_without_a_use(self) -> None:
        paths = {()} | {path for handle in self.model for path in prefixes(handle.pattern)}
        statistics = self.matcher.statistics()
        assert statistics.nodes == len(paths)
        assert statistics.patterns == len(self.model)
        assert statistics.cached_subjects <= 3

    def expect_new_generation(self) -> None:
        assert self.matcher.generation not in self.generations
        self.generations.add(self.matcher.generation)


TestMatcherAgainstModel = MatcherAgainstModel.TestCase


def prefixes(pattern: str) -> list[tuple[str, ...]]:
    levels = tuple(pattern.split("/")[1:])
    if levels[-1] == "...":
        levels = levels[:-1]
    return [levels[:count] for count in range(1, len(levels) + 1)]


@given(SUBJECTS, PATTERNS)
def test_what_is_generated_here_is_valid(subject: str, pattern: str) -> None:
    check_subject(subject)
    check_pattern(pattern)


@given(SUBJECTS)
def test_subject_matches_itself_its_wildcards_and_everything(subject: str) -> None:
    levels = subject.split("/")[1:]
    assert matches(subject, subject)
    assert matches("/*" * len(levels), subject)
    assert matches("/...", subject)
    assert not matches(subject + "/...", subject)
    assert not matches(subject + "/*", subject)


@given(PATTERNS, SUBJECTS)
def test_matching_agrees_with_the_definition_by_recursion(pattern: str, subject: str) -> None:
    assert matches(pattern, subject) == defined(pattern.split("/")[1:], subject.split("/")[1:])


def defined(pattern: list[str], subject: list[str]) -> bool:
    if pattern == ["..."]:
        return len(subject) >= 1
    if not pattern or not subject:
        return pattern == subject
    return pattern[0] in ("*", subject[0]) and defined(pattern[1:], subject[1:])


@given(st.text(alphabet=st.characters() | st.sampled_from("//*.…\x00\ud800"), max_size=12))
def test_any_text_is_valid_or_refused_and_a_subject_is_always_a_pattern(text: str) -> None:
    is_subject = is_accepted_by_subject(text)
    is_valid = (
        text.startswith("/")
        and all(text[1:].split("/"))
        and not any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in text)
        and "…" not in text
        and not {"*", "..."} & set(text.split("/"))
    )
    assert is_subject == is_valid
    if is_subject:
        check_pattern(text)


def is_accepted_by_subject(text: str) -> bool:
    try:
        check_subject(text)
    except SubjectError:
        return False
    return True
