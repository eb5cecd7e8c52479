"""`hubbub info`: everybody at both ends of one subject."""

from functools import partial
from typing import Annotated, Any

import typer

import hubbub
from hubbub.awareness import RemotePublisher
from hubbub.cli.directory import (
    Subscriber,
    Topic,
    list_topics,
    publisher_fields,
    subscriber_fields,
)
from hubbub.cli.gateways import ROUTE_COLUMNS, Gateways, route_rows, topic_fields
from hubbub.cli.looking import WAIT_S, Wait, describe_place, look
from hubbub.cli.options import Bus, Json, on_the_bus
from hubbub.cli.screen import UNKNOWN, Column, Screen, table
from hubbub.cli.session import open_node
from hubbub.cli.terminal import print_json

_PLACE = ("node", "host", "pid", "link")
_TEXTS = ("node", "host", "link", "type", "delivery", "by")


@on_the_bus
def info(
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="A subject, no pattern.")],
    wait: Wait = WAIT_S,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Show who publishes a subject, and who wants it.

    By which pattern, too, and which gateways pass it on. Exits with 1 when nobody does either.
    """
    if "*" in subject.split("/") or subject.endswith("/..."):
        raise hubbub.SubjectError(
            f"info is of one subject: `hubbub ls -v '{subject}'` lists several"
        )
    hubbub.check_subject(subject)

    node = open_node(bus)
    look(node, wait, lambda node: partial(_show, node, Gateways(node), subject, as_json))


def _show(
    node: hubbub.Node, gateways: Gateways, subject: str, as_json: bool, screen: Screen
) -> bool:
    topic = _find(node, subject)
    if as_json:
        print_json({**_fields(topic), "gateways": _passed(gateways, subject)})
    if not topic.publishers and not topic.subscribers:
        screen.note(f"nobody publishes or wants {subject} {describe_place(node)}")
        return False
    if not as_json:
        lines = _lines(topic, screen.width)
        screen.show([*lines, *_gateway_lines(gateways, subject, screen)])
    if len(topic.types) > 1:
        names = ", ".join(name or "plain bytes" for name in topic.types)
        screen.note(f"the publishers of {subject} do not agree on its type: {names}")
    return True


def _find(node: hubbub.Node, subject: str) -> Topic:
    return next(iter(list_topics(node.peers(), subject)), Topic(subject))


def _lines(topic: Topic, width: int | None) -> list[str]:
    lines = []
    if topic.publishers:
        rows = [
            (str(one.node), one.host, str(one.pid), one.link, one.schema or UNKNOWN,
             _delivery_of(one), f"{one.sequence:,}")
            for one in topic.publishers
        ]  # fmt: skip
        columns = _columns(*_PLACE, "type", "delivery", "sequence")
        lines += ["publishers", *table(columns, rows, width)]
    if topic.publishers and topic.subscribers:
        lines.append("")
    if topic.subscribers:
        rows_of_subscribers = [
            (str(one.node.node), one.node.host, str(one.node.pid), one.node.link,
             ", ".join(_wanted_by(one)))
            for one in topic.subscribers
        ]  # fmt: skip
        lines += ["subscribers", *table(_columns(*_PLACE, "by"), rows_of_subscribers, width)]
    return lines


def _delivery_of(one: RemotePublisher) -> str:
    delivery = "reliable" if one.is_reliable else "best effort"
    return f"{delivery} over {' or '.join(one.links)}" if one.links else delivery


def _wanted_by(one: Subscriber) -> list[str]:
    """Name the patterns of a subscriber, and by which links it insists on having them."""
    wishes = [(pattern, links) for pattern, links in one.node.wishes if pattern in one.patterns]
    insisted = [f"{pattern} over {' or '.join(links)}" for pattern, links in wishes]
    plain = [pattern for pattern in one.patterns if pattern not in dict(wishes)]
    return [*plain, *insisted]


def _gateway_lines(gateways: Gateways, subject: str, screen: Screen) -> list[str]:
    rows = route_rows(gateways, subject)
    return ["", "gateways", *table(ROUTE_COLUMNS, rows, screen.width)] if rows else []


def _passed(gateways: Gateways, subject: str) -> list[dict[str, Any]]:
    return [
        {"gateway": one.name, "to": port.name, **topic_fields(topic)}
        for one in gateways
        for port in one.ports
        for topic in port.topics
        if topic.subject == subject
    ]


def _columns(*titles: str) -> list[Column]:
    return [Column(title, is_number=title not in _TEXTS) for title in titles]


def _fields(topic: Topic) -> dict[str, Any]:
    return {
        "subject": topic.subject,
        "publishers": [publisher_fields(one) for one in topic.publishers],
        "subscribers": [subscriber_fields(one) for one in topic.subscribers],
    }
