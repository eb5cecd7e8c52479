"""Subjects and patterns: what is refused and why, what matches, and what matching costs."""

import pickle
import sys
from threading import Event, Thread

import pytest

from hubbub.errors import SubjectError
from hubbub.subjects import Handle, Matcher, check_pattern, check_subject, matches, overlap

# Each row holds by itself and beside every other subscription of the table.
VECTORS = [
    ("/foo/bar", ["/foo/bar"], ["/foo/bar/fie", "/foo", "/Foo/bar"]),
    ("/foo/*", ["/foo/x", "/foo/bar"], ["/foo", "/foo/x/y", "/bar/x"]),
    ("/foo/*/bar/*", ["/foo/a/bar/b"], ["/foo/a/bar", "/foo/a/baz/b", "/foo/a/bar/b/c"]),
    ("/foo/bar/...", ["/foo/bar/x", "/foo/bar/x/y/z"], ["/foo/bar", "/foo/baz/x"]),
    ("/...", ["/a", "/foo/bar", "/foo/a/bar/b/c", "/fo*", "/ü/日本"], []),
    ("/*/b", ["/x/b", "/a/b"], ["/x/b/c", "/a", "/b"]),
    ("/a", ["/a"], ["/a/b", "/x"]),
    ("/a/*/d", ["/a/b/d", "/a/x/d"], ["/a/d", "/a/b/c"]),
    ("/a/b/c", ["/a/b/c"], ["/a/b/d", "/a/b"]),
    ("/a/b", ["/a/b"], ["/a/c/d"]),
    ("/a/*", ["/a/b", "/a/c"], ["/a/c/d", "/a"]),
    ("/*", ["/a", "/x"], ["/x/b"]),
    ("/*/...", ["/a/b", "/a/b/c"], ["/a"]),
    ("/fo*", ["/fo*"], ["/foo", "/fo", "/fo*/x"]),
    ("/a...", ["/a..."], ["/a", "/ab", "/a/b", "/a.../b"]),
    ("/a/..", ["/a/.."], ["/a/x", "/a"]),
    ("/**", ["/**"], ["/a", "/a/b"]),
]
HITS = [(pattern, subject) for pattern, subjects, _ in VECTORS for subject in subjects]
MISSES = [(pattern, subject) for pattern, _, subjects in VECTORS for subject in subjects]

MALFORMED = [
    ("", "is empty"),
    ("foo", "does not begin with '/'"),
    ("xyz/foo", "does not begin with '/'"),
    ("*", "does not begin with '/'"),
    ("/", "names no level"),
    ("//", "has an empty level: level 1 of 2"),
    ("//a", "has an empty level: level 1 of 2"),
    ("/a//b", "has an empty level: level 2 of 3"),
    ("/foo/bar/", "ends in '/'"),
    ("/a/…", "has the single character '…' as character 4: write three dots"),
    ("/a…/b", "has the single character '…' as character 3: write three dots"),
    ("/a\nb", "has the control character U+000A as character 3"),
    ("/\x00", "has the control character U+0000 as character 2"),
    ("/a\x7f", "has the control character U+007F as character 3"),
    ("/a\x85", "has the control character U+0085 as character 3"),
    ("/a\udc80", "is not valid UTF-8: a lone surrogate is character 3"),
    ("/" + "a" * 1024, "has 1025 bytes, at most 1024 are allowed"),
    ("/" + "ü" * 512, "has 1025 bytes, at most 1024 are allowed"),
    ("/a" * 65, "has 65 levels, at most 64 are allowed"),
]


@pytest.mark.parametrize(("pattern", "subject"), HITS)
def test_pattern_matches_alone_and_beside_all_others(pattern: str, subject: str) -> None:
    assert matches(pattern, subject)
    assert alone(pattern).match(subject) == (pattern,)
    assert pattern in everything().match(subject)


@pytest.mark.parametrize(("pattern", "subject"), MISSES)
def test_pattern_does_not_match_alone_nor_beside_all_others(pattern: str, subject: str) -> None:
    assert not matches(pattern, subject)
    assert alone(pattern).match(subject) == ()
    assert pattern not in everything().match(subject)


@pytest.mark.parametrize(("name", "fault"), MALFORMED)
def test_malformed_name_is_refused_with_what_is_wrong_and_where(name: str, fault: str) -> None:
    for check in (check_subject, check_pattern):
        with pytest.raises(SubjectError) as refused:
            check(name)
        assert fault in str(refused.value)
    with pytest.raises(SubjectError):
        Matcher[int]().add(name, 1)
    with pytest.raises(SubjectError):
        matches("/...", name)


def test_subject_with_a_trailing_slash_is_refused_rather_than_matched() -> None:
    with pytest.raises(SubjectError, match="subject '/foo/bar/' ends in '/'"):
        matches("/foo/bar", "/foo/bar/")


@pytest.mark.parametrize("pattern", ["/.../x", "/a/.../b/...", "/.../..."])
def test_rest_before_the_last_level_is_refused_and_leaves_nothing_behind(pattern: str) -> None:
    matcher = alone("/a")
    with pytest.raises(SubjectError, match="it may only be the last level"):
        matcher.add(pattern, "broken")
    assert matcher.match("/a") == ("/a",)
    assert matcher.statistics().nodes == 2


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        ("/*/b", r"the wildcard '\*' as level 1"),
        ("/a/*", r"the wildcard '\*' as level 2"),
        ("/a/...", r"the wildcard '\.\.\.' as level 2"),
        ("/.../x", r"the wildcard '\.\.\.' as level 1"),
    ],
)
def test_publishing_on_a_wildcard_is_refused(subject: str, fault: str) -> None:
    with pytest.raises(SubjectError, match=fault):
        check_subject(subject)


@pytest.mark.parametrize("name", [b"/a", None, 7])
def test_name_that_is_no_text_is_refused(name: object) -> None:
    with pytest.raises(SubjectError, match=f"is a str, not {type(name).__name__}"):
        check_subject(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "/a",
        "/plant/line 1/temp",
        "/ü/日本/🚗",
        "/" + "a" * 1023,
        "/a" * 64,
        "/.",
        "/a*b",
        "/\u00a0",
    ],
)
def test_name_within_the_bounds_is_a_subject_and_a_pattern(name: str) -> None:
    check_subject(name)
    check_pattern(name)
    assert alone(name).match(name) == (name,)


def test_error_shows_a_long_name_shortened() -> None:
    with pytest.raises(SubjectError) as refused:
        check_subject("/" + "a" * 1_000_000)
    assert "has 1000001 bytes" in str(refused.value)
    assert len(str(refused.value)) < 200


def test_subject_error_survives_pickling() -> None:
    with pytest.raises(SubjectError) as refused:
        check_subject("a")
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_overlapping_patterns_each_match_in_the_order_of_adding() -> None:
    matcher: Matcher[int] = Matcher()
    for value, pattern in enumerate(["/a/...", "/a/b", "/a/*", "/*/b", "/a/b", "/..."]):
        matcher.add(pattern, value)
    assert matcher.match("/a/b") == (0, 1, 2, 3, 4, 5)


def test_equal_values_on_one_pattern_stay_apart() -> None:
    matcher: Matcher[str] = Matcher()
    first = matcher.add("/a", "same")
    matcher.add("/a", "same")
    assert matcher.match("/a") == ("same", "same")
    assert matcher.remove(first)
    assert matcher.match("/a") == ("same",)


def test_removing_twice_or_elsewhere_changes_nothing() -> None:
    matcher, other = alone("/a/b"), alone("/a/b")
    handle = matcher.add("/a/...", "rest")
    assert matcher.remove(handle)
    generation = matcher.generation
    assert not matcher.remove(handle)
    assert not matcher.remove(other.add("/a/b", "foreign"))
    assert not matcher.remove(other.add("/x/y", "foreign"))
    assert matcher.generation == generation
    assert matcher.match("/a/b") == ("/a/b",)


def test_generation_changes_with_every_add_and_remove_but_not_with_match() -> None:
    matcher: Matcher[int] = Matcher()
    seen = [matcher.generation]
    handles = [matcher.add("/a", 1), matcher.add("/b", 2)]
    seen.append(matcher.generation)
    for handle in handles:
        matcher.match("/a")
        matcher.remove(handle)
        seen.append(matcher.generation)
    assert len(set(seen)) == len(seen)


def test_cached_answer_is_forgotten_on_add_and_on_remove() -> None:
    matcher: Matcher[int] = Matcher()
    assert matcher.match("/a/b") == ()
    handle = matcher.add("/*/b", 1)
    assert matcher.match("/a/b") == (1,)
    matcher.remove(handle)
    assert matcher.match("/a/b") == ()


def test_change_between_finding_and_keeping_an_answer_is_not_hidden_by_the_cache() -> None:
    class Interrupted(Matcher[int]):
        def _walk(self, levels: list[str]) -> tuple[int, ...]:
            found = super()._walk(levels)
            if self.generation == 0:
                self.add("/a", 1)
            return found

    matcher = Interrupted()
    assert matcher.match("/a") == ()
    assert matcher.match("/a") == (1,)


def test_cache_answers_without_a_visit_and_stays_within_its_bound() -> None:
    matcher: Matcher[int] = Matcher(cached_subjects_max=8)
    matcher.add("/...", 1)
    matcher.match("/a")
    visited = matcher.statistics().nodes_visited
    matcher.match("/a")
    assert matcher.statistics().nodes_visited == visited
    for number in range(100):
        assert matcher.match(f"/{number}") == (1,)
        assert matcher.statistics().cached_subjects <= 8


def test_nodes_are_pruned_down_to_the_root_and_no_further_than_needed() -> None:
    matcher: Matcher[int] = Matcher()
    deep = matcher.add("/a/*/c/d", 1)
    rest = matcher.add("/a/...", 2)
    assert matcher.statistics().nodes == 5
    matcher.remove(deep)
    assert matcher.statistics().nodes == 2
    assert matcher.match("/a/x/c/d") == (2,)
    matcher.remove(rest)
    assert (matcher.statistics().nodes, matcher.statistics().patterns) == (1, 0)


def test_cost_of_a_match_does_not_grow_with_subscriptions_that_do_not_match() -> None:
    def visits(others: int) -> int:
        matcher: Matcher[int] = Matcher()
        matcher.add("/plant/*/temp", 0)
        for number in range(others):
            matcher.add(f"/plant/line{number}/pressure", number)
            matcher.add(f"/house{number}/...", number)
            matcher.add(f"/plant/line1/temp/{number}", number)
        assert matcher.match("/plant/line1/temp") == (0,)
        return matcher.statistics().nodes_visited

    assert visits(others=2_000) == visits(others=2)


def test_result_stays_whole_while_its_reader_adds_and_removes() -> None:
    matcher: Matcher[int] = Matcher()
    handles = [matcher.add("/a", number) for number in range(10)]
    seen = []
    for value in matcher.match("/a"):
        seen.append(value)
        matcher.remove(handles[value])
        matcher.add("/a", 100 + value)
    assert seen == list(range(10))
    assert matcher.match("/a") == tuple(range(100, 110))


def test_match_beside_changing_threads_always_finds_what_stays() -> None:
    matcher: Matcher[str] = Matcher()
    stays = ["/a/b", "/a/*", "/..."]
    for pattern in stays:
        matcher.add(pattern, pattern)
    done = Event()

    def change(mine: str) -> None:
        patterns = [mine, f"{mine}/deep/er", "/a/b", "/*/b", "/*/*"]
        while not done.is_set():
            handles: list[Handle[str]] = [matcher.add(pattern, "passing") for pattern in patterns]
            for handle in handles:
                assert matcher.remove(handle)

    threads = [Thread(target=change, args=(f"/a/{number}",)) for number in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for _ in range(3_000):
            found = matcher.match("/a/b")
            assert [value for value in found if value != "passing"] == stays
            assert len(found) <= len(stays) + 9
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert matcher.match("/a/b") == tuple(stays)
    assert matcher.statistics().patterns == len(stays)


def alone(pattern: str) -> Matcher[str]:
    matcher: Matcher[str] = Matcher()
    matcher.add(pattern, pattern)
    return matcher


def everything() -> Matcher[str]:
    matcher: Matcher[str] = Matcher()
    for pattern, _, _ in VECTORS:
        matcher.add(pattern, pattern)
    return matcher


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("/a/b", "/a/b", True), ("/a/b", "/a/c", False), ("/a/*", "/*/b", True),
        ("/a/...", "/a", False), ("/a/...", "/a/b/c", True), ("/...", "/a", True),
        ("/a/...", "/b/...", False), ("/*/b", "/a", False), ("/a/*/c", "/a/...", True),
    ],
)  # fmt: skip
def test_patterns_overlap_if_a_subject_can_match_both(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is expected
    assert overlap(other, one) is expected
