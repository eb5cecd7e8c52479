"""HTML and SVG that cannot be broken by what the bus carried.

`element` makes markup, and everything that is not markup becomes text: escaped, with whatever
cannot be seen written out. So there is no place where one could forget to escape a name.
"""

from html import escape


class Markup(str):
    """A piece of HTML or SVG, well-formed, to be put in as it is."""

    __slots__ = ()


Child = str | Markup | None
Value = str | float | int | None

_VOID = frozenset({"meta", "br", "hr"})


def text(value: str) -> Markup:
    """Escape a text, and write out characters that cannot be seen or turn the line around."""
    if not value.isprintable():
        value = "".join(one if one.isprintable() else _written_out(one) for one in value)
    return Markup(escape(value))


def _written_out(one: str) -> str:
    code = ord(one)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"


def join(*children: Child) -> Markup:
    """Put pieces behind each other; what is not markup is text, None is nothing."""
    return Markup(
        "".join(
            one if isinstance(one, Markup) else text(one) for one in children if one is not None
        )
    )


def element(name: str, /, *children: Child, **attributes: Value) -> Markup:
    """Make an element; attribute `class_` is `class`, `text_anchor` `text-anchor`, None none."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = join(*children)
    if name in _VOID:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{inside}</{name}>")


def _value(value: Value) -> str:
    if isinstance(value, float):
        return number(value)
    return text(str(value))


def number(value: float) -> str:
    """Write a coordinate: a tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0")
