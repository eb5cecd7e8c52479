"""`hubbub graph`: who talks to whom, as a tree of text or for Graphviz."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

import hubbub
from hubbub.awareness import RemotePeer, RemotePublisher
from hubbub.cli.directory import EVERYTHING, Topic, list_topics
from hubbub.cli.looking import WAIT_S, Pattern, Wait, describe_place, look
from hubbub.cli.options import Bus, Json, on_the_bus
from hubbub.cli.screen import Screen
from hubbub.cli.session import open_node
from hubbub.cli.terminal import cut, escape, print_json


@on_the_bus
def graph(
    pattern: Pattern = EVERYTHING,
    dot: Annotated[bool, typer.Option("--dot", help="Write a graph for Graphviz.")] = False,
    wait: Wait = WAIT_S,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Show who talks to whom, and about what.

    Exits with 1 when nobody publishes or wants anything.
    """
    hubbub.check_pattern(pattern)

    node = open_node(bus)

    def show(screen: Screen) -> bool:
        topics = list_topics(node.peers(), pattern)
        if as_json:
            print_json(_fields(topics))
        elif dot:
            screen.show(_draw(topics))
        elif topics:
            lines = map(escape, _grow(topics))
            width = screen.width
            screen.show([line if width is None else cut(line, width) for line in lines])
        if not topics:
            screen.note(f"no topic matches {pattern} {describe_place(node)}")
        return bool(topics)

    look(node, wait, lambda _: show)


def _grow(topics: Iterable[Topic]) -> list[str]:
    """Write each node with what it publishes, then what is wanted and nobody publishes."""
    published: dict[str, list[str]] = {}
    unmet = []
    for topic in topics:
        receivers = ", ".join(str(one.node.node) for one in topic.subscribers)
        for publisher in topic.publishers:
            line = f"  {topic.subject} -> {receivers or 'nobody'}"
            published.setdefault(str(publisher.node), []).append(line)
        if not topic.publishers:
            unmet.append(f"  {topic.subject} -> {receivers}")
    lines = [line for name, below in sorted(published.items()) for line in (name, *below)]
    return [*lines, "(nobody publishes)", *unmet] if unmet else lines


def _draw(topics: Iterable[Topic]) -> list[str]:
    """Write boxes for nodes, and subjects between them."""
    nodes: dict[str, str] = {}
    edges = []
    for topic in topics:
        subject = _quote(topic.subject)
        edges += [f"{_box(nodes, one.node)} -> {subject}" for one in topic.publishers]
        edges += [f"{subject} -> {_box(nodes, one.node.node)}" for one in topic.subscribers]
    boxes = [f"{key} [shape=box, label={label}]" for key, label in sorted(nodes.items())]
    inside = [f"  {line};" for line in ("rankdir=LR", *boxes, *edges)]
    return ["digraph hubbub {", *inside, "}"]


def _box(nodes: dict[str, str], source: hubbub.Source) -> str:
    """Note a node, once, and return under what."""
    key = _quote(source.id.hex())
    nodes[key] = _quote(str(source))
    return key


def _quote(text: str) -> str:
    """Write a string as Graphviz reads it."""
    return '"' + escape(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _fields(topics: Iterable[Topic]) -> dict[str, Any]:
    nodes: dict[str, dict[str, Any]] = {}
    edges: list[dict[str, str | None]] = []
    for topic in topics:
        # One end may be missing: a subject that nobody wants, or that nobody publishes.
        sources = [_enter(nodes, one) for one in topic.publishers] or [None]
        targets = [_enter(nodes, one.node) for one in topic.subscribers] or [None]
        edges += [
            {"from": source, "subject": topic.subject, "to": target}
            for source in sources
            for target in targets
        ]
    return {"nodes": list(nodes.values()), "edges": edges}


def _enter(nodes: dict[str, dict[str, Any]], one: RemotePeer | RemotePublisher) -> str | None:
    """Note a node, once, and return under what."""
    key = one.node.id.hex()
    nodes.setdefault(key, {"id": key, "name": one.node.name, "host": one.host, "pid": one.pid})
    return key
