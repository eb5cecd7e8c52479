"""`hubbub ls`: the topics of the bus, as the nodes declare them."""

import time
from typing import Annotated, Any

import typer

import hubbub
from hubbub.cli.directory import (
    EVERYTHING,
    Topic,
    list_topics,
    publisher_fields,
    subscriber_fields,
)
from hubbub.cli.gateways import ARROW, Gateways, far_fields
from hubbub.cli.looking import WAIT_S, Pattern, Show, Wait, describe_place, look
from hubbub.cli.options import Bus, Json, on_the_bus
from hubbub.cli.quantities import at_least
from hubbub.cli.screen import UNKNOWN, Column, Screen, table
from hubbub.cli.session import QUEUE_MESSAGES, open_node
from hubbub.cli.terminal import plural, print_json

Rates = dict[str, float]


@on_the_bus
def ls(
    pattern: Pattern = EVERYTHING,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Name the nodes instead of counting them.")
    ] = False,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            parser=at_least(0.01),
            metavar="DURATION",
            help="Subscribe so long, and show rates.",
        ),
    ] = None,
    wait: Wait = WAIT_S,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """List the topics that are published and wanted, and by how many.

    Behind gateways, too: `1→2 by west > east` is one that publishes and two that want it, there.
    Exits with 1 when there are none.
    """
    hubbub.check_pattern(pattern)

    def begin(node: hubbub.Node) -> Show:
        gateways = Gateways(node)

        def show(screen: Screen) -> bool:
            rates = None if rate is None else _measure(node, pattern, rate, screen)
            topics = list_topics(node.peers(), pattern, gateways.far_nodes())
            if as_json:
                print_json({"topics": [_fields(topic, rates) for topic in topics]})
            elif topics:
                lines = table(*_lay_out(topics, rates, is_verbose=verbose), screen.width)
                summary = [plural(len(topics), "topic")] if screen.is_terminal else []
                screen.show([*lines, *summary])
            if not topics:
                screen.note(f"no topic matches {pattern} {describe_place(node)}")
            return bool(topics)

        return show

    look(open_node(bus), wait, begin)


def _measure(node: hubbub.Node, pattern: str, seconds: float, screen: Screen) -> Rates:
    """Count what comes for so long; return messages per second by subject."""
    counts: dict[str, int] = {}
    with node.subscribe(pattern, queue=QUEUE_MESSAGES, no_local=True) as subscription:
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            message = subscription.receive(left_s)
            if message is not None:
                counts[message.subject] = counts.get(message.subject, 0) + 1
        if subscription.dropped:
            uncounted = plural(subscription.dropped, "message")
            screen.note(f"rates are too low: {uncounted} came too fast to be counted")
    return {subject: count / seconds for subject, count in counts.items()}


def _lay_out(
    topics: list[Topic], rates: Rates | None, *, is_verbose: bool
) -> tuple[list[Column], list[tuple[str, ...]]]:
    ends = ["publishers", "subscribers"]
    columns = [Column("subject", is_number=False), Column("type", is_number=False)]
    columns += [Column(title, is_number=not is_verbose) for title in ends]
    if rates is not None:
        columns.append(Column("per s"))
    rows = [_cells(topic, rates, is_verbose=is_verbose) for topic in topics]
    if any(topic.is_far for topic in topics):
        columns.append(Column("beyond", is_number=False))
        far = [_far_cell(topic, is_verbose=is_verbose) for topic in topics]
        rows = [(*row, cell) for row, cell in zip(rows, far, strict=True)]
    return columns, rows


def _cells(topic: Topic, rates: Rates | None, *, is_verbose: bool) -> tuple[str, ...]:
    publishers = [str(one.node) for one in topic.publishers]
    subscribers = [str(one.node.node) for one in topic.subscribers]
    cells = [topic.subject, ", ".join(name or UNKNOWN for name in topic.types) or UNKNOWN]
    if is_verbose:
        cells += [", ".join(nodes) or UNKNOWN for nodes in (publishers, subscribers)]
    else:
        cells += [f"{len(nodes):,}" for nodes in (publishers, subscribers)]
    if rates is not None:
        cells.append(f"{rates.get(topic.subject, 0):,.1f}")
    return tuple(cells)


def _far_cell(topic: Topic, *, is_verbose: bool) -> str:
    """Say who publishes and wants a topic behind gateways, and by which way."""
    ends = topic.far_publishers, topic.far_subscribers
    if is_verbose:
        named = [", ".join(str(one.node.source) for one in end) or UNKNOWN for end in ends]
        text = " → ".join(named)
    else:
        text = "→".join(f"{len(end):,}" for end in ends)
    ways = dict.fromkeys(ARROW.join(one.path) for end in ends for one in end)
    return f"{text} by {', '.join(ways)}" if ways else UNKNOWN


def _fields(topic: Topic, rates: Rates | None) -> dict[str, Any]:
    return {
        "subject": topic.subject,
        "types": [name for name in topic.types if name],
        "publishers": [publisher_fields(one) for one in topic.publishers],
        "subscribers": [subscriber_fields(one) for one in topic.subscribers],
        "far_publishers": [far_fields(one) for one in topic.far_publishers],
        "far_subscribers": [far_fields(one) for one in topic.far_subscribers],
        "messages_per_second": None if rates is None else round(rates.get(topic.subject, 0), 3),
    }
