"""Markup that nothing from outside can break."""

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from hubbub.report.markup import Markup, element, join, text


def test_text_is_escaped_and_markup_is_not() -> None:
    inside = element("b", "<script>")
    assert element("p", inside, "&") == "<p><b>&lt;script&gt;</b>&amp;</p>"


def test_attributes_are_escaped_named_and_left_out() -> None:
    made = element("a", class_='"><script>', text_anchor="end", x=1.25, y=2.0, href=None)
    assert made == '<a class="&quot;&gt;&lt;script&gt;" text-anchor="end" x="1.2" y="2"></a>'


def test_what_cannot_be_seen_is_written_out() -> None:
    assert text("a\x00b\u202ec") == "a\\x00b\\u202ec"
    assert text("Straße 世界") == "Straße 世界"


@given(st.lists(st.text(), max_size=3), st.text())
def test_any_text_gives_well_formed_markup_that_says_it(children: list[str], value: str) -> None:
    made = element("p", *children, title=value)
    assert isinstance(made, Markup)
    tree = ET.fromstring(made)
    assert not list(tree)
    assert join(*children) == text("".join(children))
