"""`hubbub gateway`: join networks into one bus, until it is stopped."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import hubbub
from hubbub.cli.options import Interface, Log
from hubbub.cli.session import end_on_sigterm, set_up_log
from hubbub.cli.terminal import note, plural
from hubbub.gateway import Gateway, Side, read_side
from hubbub.gateway.config import Config, read_config
from hubbub.gateway.side import check_sides

_NAME = "gateway"

app = typer.Typer(
    help="Join networks into one bus: LANs of this host, and sites by TCP.",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@app.callback()
def gateway(
    context: typer.Context,
    sides: Annotated[
        list[str] | None,
        typer.Option(
            "--side",
            metavar="OPTION=VALUE,...",
            help="A network to join: name, domain, interface, group, port, listen, peers"
            " (joined by +). At least two.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Read all that from TOML.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether that can work, and exit.")
    ] = False,
    name: Annotated[str | None, typer.Option("--name", help="What others see it as.")] = None,
    interface: Interface = None,
    log: Log = None,
) -> None:
    """Pass on what nodes beyond want, under the name of its origin, in order and once.

    Nothing crosses that nobody beyond wants. Sides are LANs (interface=, domain=, group=, port=) or
    sites by TCP (listen=, peers=). Exits with 2 when two sides are the same network.
    """
    if context.invoked_subcommand is not None:
        return
    described = _describe(sides or [], config)
    joined = ", ".join(side.name for side in described.sides)
    if check:
        note(f"{plural(len(described.sides), 'side')}: {joined}")
        return
    set_up_log(is_wanted=log is not None)
    if log is not None:
        hubbub.set_log(log)
    _run([_placed(side, interface) for side in described.sides], name or described.name or _NAME)


def _describe(sides: list[str], path: Path | None) -> Config:
    if path is None:
        return Config(None, check_sides(map(read_side, sides)))
    if sides:
        raise typer.BadParameter("--config and --side: leave one of them out")
    return read_config(path)


def _placed(side: Side, interface: str | None) -> Side:
    """Let --interface hold where a side says nothing of its own."""
    return replace(side, interface=side.interface or interface)


def _run(sides: list[Side], name: str) -> None:
    end_on_sigterm()
    with Gateway.open(sides, name=name) as joined:
        for node in joined.nodes:
            node.on_event(_tell)
        note(f"{name} joins {', '.join(side.name for side in sides)}")
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            pass
        finally:
            for port in joined.statistics().ports:
                note(f"passed on to {port.name}: {plural(port.messages, 'message')}")


def _tell(event: hubbub.Event) -> None:
    if isinstance(event, hubbub.GapAbandoned | hubbub.SlowConsumer):
        note(str(event))
