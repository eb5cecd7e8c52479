"""Subjects with other names beyond a gateway, against brute force in a small world."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.errors import ConfigurationError
from hubbub.protocol.gateway.remap import Remap
from hubbub.subjects import matches

LEVELS = ("a", "b", "c")
SUBJECTS = ["/" + "/".join(one) for size in (1, 2, 3) for one in product(LEVELS, repeat=size)]
subjects = st.sampled_from(SUBJECTS)
tables = st.dictionaries(subjects, subjects, max_size=3)
patterns = st.lists(st.sampled_from([*LEVELS, "*"]), max_size=3).flatmap(
    lambda levels: st.sampled_from(
        ["/" + "/".join(levels)] * bool(levels) + ["/" + "/".join([*levels, "..."])]
    )
)


def make(table: dict[str, str]) -> Remap | None:
    try:
        return Remap(table)
    except ConfigurationError:
        return None


@given(tables)
def test_who_leaves_and_comes_back_is_the_same_and_nobody_else(table: dict[str, str]) -> None:
    remap = make(table)
    if remap is None:
        return
    for there, back in ((remap.out, remap.into), (remap.into, remap.out)):
        named = {subject: there.subject(subject) for subject in SUBJECTS}
        crossing = {old: new for old, new in named.items() if new is not None}
        assert len(set(crossing.values())) == len(crossing), "two became one"
        assert {old: back.subject(new) for old, new in crossing.items()} == {
            old: old for old in crossing
        }


@given(tables, patterns)
def test_patterns_ask_beyond_for_all_that_is_wanted_here(
    table: dict[str, str], pattern: str
) -> None:
    remap = make(table)
    if remap is None:
        return
    asked = list(remap.out.patterns(pattern))
    for subject in SUBJECTS:
        called = remap.out.subject(subject)
        if called is not None and matches(pattern, subject):
            assert any(matches(one, called) for one in asked), (subject, called, asked)


def test_pattern_below_a_prefix_asks_for_nothing_else() -> None:
    remap = Remap({"/plant": "/site1/plant"})
    assert list(remap.out.patterns("/plant/*/temp")) == ["/site1/plant/*/temp"]
    assert list(remap.out.patterns("/office/...")) == ["/office/..."]
    assert list(remap.into.patterns("/site1/...")) == ["/plant", "/plant/...", "/site1/..."]


def test_subject_that_would_take_the_name_of_another_does_not_cross() -> None:
    remap = Remap({"/plant": "/site1/plant"})
    assert remap.out.subject("/plant/x") == "/site1/plant/x"
    assert remap.out.subject("/site1/plant/x") is None and remap.into.subject("/plant/x") is None
    assert remap.out.subject("/plantation") == remap.into.subject("/plantation") == "/plantation"


@pytest.mark.parametrize(
    "table",
    [{"/a": "/x", "/a/b": "/y"}, {"/a": "/x", "/b": "/x"}, {"/a": "/x", "/b": "/x/y"}],
)
def test_names_that_collide_are_refused(table: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="collide"):
        Remap(table)
