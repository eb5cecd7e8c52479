"""`hubbub services`, `ring` and `service`: what there is, who manages it, and using it."""

from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

import hubbub
from hubbub.cli.following import Count, JsonLines, Raw, Timeout, follow, make_writer
from hubbub.cli.looking import Wait, Watch, describe_place, look
from hubbub.cli.options import Bus, Json, on_the_bus
from hubbub.cli.publishing import as_typed, stdin_lines
from hubbub.cli.quantities import at_least
from hubbub.cli.screen import Column, Screen, table
from hubbub.cli.session import EXIT_LOST, GUEST, open_node
from hubbub.cli.terminal import note, plural, print_json
from hubbub.service_statistics import ListedService

_WAIT_S = 1.0
_ID_LETTERS = 12
_COLUMNS = (
    Column("service", is_number=False),
    Column("key", is_number=False, is_optional=True),
    Column("manager", is_number=False),
    Column("at", is_number=False),
    Column("epoch"),
    Column("messages"),
    Column("subscribers"),
    Column("my role", is_number=False),
)
_WHO_COLUMNS = (
    Column("service", is_number=False),
    Column("epoch"),
    Column("node", is_number=False),
    Column("at", is_number=False),
    Column("name", is_number=False, is_optional=True),
    Column("role", is_number=False),
)
_RING_COLUMNS = (
    Column("node", is_number=False),
    Column("at", is_number=False),
    Column("state", is_number=False),
    Column("share"),
    Column("would manage", is_number=False),
)

app = typer.Typer(
    help="Publish in a service, or listen to one.", no_args_is_help=True, rich_markup_mode=None
)


@on_the_bus
def services(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Who is in these services?")
    ] = None,
    who: Annotated[bool, typer.Option("--who", help="Show who is in each service.")] = False,
    wait: Wait = _WAIT_S,
    watch: Watch = False,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Show all services, who manages them, and how many subscribe.

    With a NAME, or --who, show who subscribes. Exits with 1 when there are none.
    """
    node = open_node(bus, services=GUEST)
    show = partial(_show_who, node, names or []) if names or who else partial(_show, node)
    look(node, wait, lambda _: partial(show, as_json), is_watching=watch)


def _show_who(node: hubbub.Node, names: list[str], as_json: bool, screen: Screen) -> bool:
    found = node.services.find_subscribers(names)
    if as_json:
        print_json(
            [{**asdict(one.service), "nodes": [asdict(node) for node in one.subscribers]}
             for one in found]
        )  # fmt: skip
    elif found:
        rows = [row for one in found for row in _who(one)]
        screen.show(table(_WHO_COLUMNS, rows, screen.width))
    else:
        what = " or ".join(names) or "a service"
        screen.note(f"nobody subscribes to {what} {describe_place(node)}")
    return bool(found)


def _who(one: ListedService) -> list[tuple[str, ...]]:
    """Return the lines of a service: its manager, its subscribers, and how many more."""
    name, epoch = one.service.name or "?", str(one.service.epoch)
    is_in = one.manager in one.subscribers
    shown = [(one.manager, "manages, subscribes" if is_in else "manages")]
    shown += [(node, "subscribes") for node in one.subscribers if node != one.manager]
    rows: list[tuple[str, ...]] = [
        (name, epoch, node.id[:_ID_LETTERS], node.address, node.name, role) for node, role in shown
    ]
    more = one.service.subscribers - len(one.subscribers)
    return [*rows, (name, epoch, f"{more:,} more", "", "", "subscribes")] if more > 0 else rows


def _show(node: hubbub.Node, as_json: bool, screen: Screen) -> bool:
    found = node.services.find()
    if as_json:
        print_json([asdict(one) for one in found])
    elif found:
        rows = [
            (
                one.name or "?", one.key[:_ID_LETTERS], one.manager[:_ID_LETTERS], one.address,
                str(one.epoch), f"{one.messages:,}", f"{one.subscribers:,}", one.role,
            )
            for one in found
        ]  # fmt: skip
        screen.show(table(_COLUMNS, rows, screen.width))
    else:
        count = len(node.services.ring())
        shared = f"{plural(count, 'node')} share{'s' if count == 1 else ''} services"
        screen.note(f"nobody subscribes to a service {describe_place(node)}; {shared}")
    return bool(found)


@on_the_bus
def ring(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Who would manage these? By default all there are."),
    ] = None,
    wait: Wait = _WAIT_S,
    watch: Watch = False,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Show the nodes that share services, and who would manage what.

    Exits with 1 when there are none.
    """
    node = open_node(bus, services=GUEST)
    look(
        node, wait, lambda node: partial(_show_ring, node, names or [], as_json), is_watching=watch
    )


def _show_ring(node: hubbub.Node, names: list[str], as_json: bool, screen: Screen) -> bool:
    names = names or sorted({one.name for one in node.services.find() if one.name})
    members = node.services.ring()
    managers = {name: node.services.manager_of(name) for name in names}
    if as_json:
        print_json({"nodes": [asdict(one) for one in members], "managers": managers})
    elif members:
        rows = [
            (
                one.id[:_ID_LETTERS], one.address, one.state, f"{100 * one.share:.1f} %",
                ", ".join(name for name in names if managers[name] == one.id),
            )
            for one in members
        ]  # fmt: skip
        screen.show(table(_RING_COLUMNS, rows, screen.width))
    else:
        screen.note(f"nobody shares services {describe_place(node)}")
    return bool(members)


Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the service.")]


@app.command("pub")
@on_the_bus
def publish(
    name: Name,
    payload: Annotated[
        str | None, typer.Argument(metavar="BODY", help="By default each line of stdin.")
    ] = None,
    retain: Annotated[
        bool, typer.Option("--retain", help="Keep it for those who subscribe later.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            parser=at_least(0),
            metavar="DURATION",
            help="For the manager to take it.",
        ),
    ] = 5.0,
    as_json: Json = False,
    *,
    bus: Bus,
) -> None:
    """Publish in a service. Exits with 1 when nobody subscribes, with 3 when no manager took it."""
    code = 0
    with open_node(bus, services=True) as node:
        node.services.wait_for_members(1, 1.0)
        service = node.service(name)
        for body in stdin_lines() if payload is None else [as_typed(payload)]:
            count = service.publish(body, wait=timeout, retain=retain)
            if as_json:
                print_json({"service": name, "subscribers": count, "manager": service.manager})
            elif not count:
                note("no manager took it" if count is None else f"nobody subscribes to {name}")
            code = max(code, 3 if count is None else 0 if count or retain else 1)
        _note_if_alone(node, bus)
    raise typer.Exit(code)


def _note_if_alone(node: hubbub.Node, bus: Bus) -> None:
    """Say that peers were named, and none of them answers: services need UDP."""
    if bus.peers and not node.services.statistics().members:
        note(f"no node answers at {bus.peers}: services go by UDP, at the same port as TCP")


@app.command("sub")
@on_the_bus
def subscribe(
    name: Name,
    count: Count = None,
    order: Annotated[
        str, typer.Option("--order", help="none, fifo (each publisher's) or total.")
    ] = "none",
    as_json: JsonLines = False,
    raw: Raw = False,
    timeout: Timeout = None,
    *,
    bus: Bus,
) -> None:
    """Print the messages of a service, until Ctrl-C.

    Exits with 3 when messages were dropped here, with 1 when --timeout ended it before anything
    came, or before -n messages came.
    """
    write = make_writer(as_json=as_json, raw=raw)
    with open_node(bus, services=True) as node:
        subscription = node.service(name).subscribe(order=order)
        code = follow(subscription.receive, write, count, timeout)
        dropped = subscription.dropped
    if dropped:
        note(f"{plural(dropped, 'message')} dropped: they came faster than they were printed")
        code = EXIT_LOST
    raise typer.Exit(code)
