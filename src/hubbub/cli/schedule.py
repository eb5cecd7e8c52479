"""`hubbub schedule`: who makes and wants what how often, and how well that goes."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import hubbub
from hubbub.cli.looking import Wait, Watch, describe_place, look
from hubbub.cli.options import Bus, Json, on_the_bus
from hubbub.cli.screen import UNKNOWN, Column, Screen, table
from hubbub.cli.session import open_node
from hubbub.cli.terminal import print_json

_WAIT_S = 1.3  # Producers tell what they do each second, once somebody looks on.
_COLUMNS = (
    Column("subject", is_number=False),
    Column("who", is_number=False),
    Column("port", is_optional=True),
    Column("role", is_number=False),
    Column("mode", is_number=False, is_optional=True),
    Column("period"),
    Column("tick", is_optional=True),
    Column("load"),
    Column("samples"),
    Column("missed"),
)


@on_the_bus
def schedule(
    wait: Wait = _WAIT_S,
    watch: Watch = False,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Show time-triggered topics: who makes and wants what, how often.

    Exits with 1 when there are none.
    """
    node = open_node(bus)
    look(node, wait, lambda node: partial(_show, node, node.schedule(), as_json), is_watching=watch)


def _show(node: hubbub.Node, seen: hubbub.Schedule, as_json: bool, screen: Screen) -> bool:
    """Show who makes and wants samples now; False: nobody does either."""
    producers, unserved = seen.producers(), seen.unserved()
    if as_json:
        print_json({
            "producers": [_producer_fields(one) for one in producers],
            "unserved": [_consumer_fields(one) for one in unserved],
        })  # fmt: skip
    elif producers or unserved:
        screen.show(table(_COLUMNS, _rows(producers, unserved), screen.width))
    else:
        screen.note(f"nobody makes or wants samples {describe_place(node)}")
    return bool(producers or unserved)


def _rows(
    producers: Sequence[hubbub.ScheduledProducer], unserved: Sequence[hubbub.ScheduledConsumer]
) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for one in producers:
        rows.append((
            one.subject, str(one.source), str(one.port), "makes", one.schedule,
            UNKNOWN if not one.granted_ms else f"{one.granted_ms:g} ms", f"{one.tick_ms:g} ms",
            f"{one.ticks_hz:,.1f}/s", f"{one.sent:,}", f"{one.skipped:,}",
        ))  # fmt: skip
        rows += [_consumer_row(consumer, "wants") for consumer in one.consumers]
    return rows + [_consumer_row(consumer, "wants (nobody makes it)") for consumer in unserved]


def _consumer_row(one: hubbub.ScheduledConsumer, role: str) -> tuple[str, ...]:
    return (
        one.subject, str(one.source), str(one.port), role, one.mode,
        f"{one.period_ms:g} ms" if one.period_ms else "once", "", "",
        f"{one.served:,}", f"{one.missed:,}",
    )  # fmt: skip


def _producer_fields(one: hubbub.ScheduledProducer) -> dict[str, Any]:
    return {
        **_end_fields(one),
        "schedule": one.schedule,
        "tick_ms": one.tick_ms,
        "granted_ms": one.granted_ms,
        "ticks_hz": one.ticks_hz,
        "sent": one.sent,
        "skipped": one.skipped,
        "consumers": [_consumer_fields(consumer) for consumer in one.consumers],
    }


def _consumer_fields(one: hubbub.ScheduledConsumer) -> dict[str, Any]:
    return {
        **_end_fields(one),
        "mode": one.mode,
        "period_ms": one.period_ms,
        "served": one.served,
        "missed": one.missed,
    }


def _end_fields(one: hubbub.ScheduledProducer | hubbub.ScheduledConsumer) -> dict[str, Any]:
    """Return what both ends of a time-triggered topic have."""
    return {
        "subject": one.subject,
        "data_type": one.data_type,
        "source": one.source.name,
        "source_id": one.source.id.hex(),
        "port": one.port,
    }
