"""`hubbub gateway`: join networks into one bus, until it is stopped."""

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import hubbub
from hubbub.cli.options import Bus, Interface, Log, on_the_bus
from hubbub.cli.session import end_on_sigterm, open_node, set_up_log, tell_of
from hubbub.cli.terminal import note, plural
from hubbub.gateway import Gateway, RodosGateway, Side, open_links, read_side
from hubbub.gateway.config import Config, read_config
from hubbub.gateway.reading import OPTIONS
from hubbub.gateway.side import check_sides
from hubbub.protocol.gateway.router import INTELLIGENT

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
            help=f"A network to join: {', '.join(OPTIONS)}; what is a list, joined by +. At least"
            " two.",
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
    sites by TCP (listen=, peers=), with certificates if there are any (ca=, certificate=, key=),
    and only from who may call (allow=). Exits with 2 when two sides are the same network.
    """
    if context.invoked_subcommand is not None:
        return
    described = _describe(sides or [], config)
    joined = ", ".join(side.name for side in described.sides)
    if check:
        for side in described.sides:
            side.tcp.make_tls()
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
        tell = tell_of(hubbub.GapAbandoned, hubbub.SlowConsumer, hubbub.PeerRefused)
        for node in joined.nodes:
            node.on_event(tell)
        note(f"{name} joins {', '.join(side.name for side in sides)}")
        try:
            _wait()
        finally:
            for port in joined.statistics().ports:
                note(f"passed on to {port.name}: {plural(port.messages, 'message')}")


def _wait() -> None:
    """Wait until somebody ends this."""
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600)


@app.command("rodos")
@on_the_bus
def rodos(
    udp: Annotated[
        list[str],
        typer.Option(
            metavar="[ADDRESS:]PORT[=TO]",
            help="Where RODOS nodes are heard, and where to send: addresses joined by +, by default"
            " broadcast. May be repeated: then this is a router between them.",
        ),
    ],
    topics: Annotated[
        list[str], typer.Option("--map", metavar="TOPICID=SUBJECT", help="Which topic is what.")
    ],
    number: Annotated[
        int | None,
        typer.Option("--node", min=0, max=0x7FFF_FFFF, help="Our number there. By default any."),
    ] = None,
    split: Annotated[
        bool, typer.Option("--split", help="Send longer messages in pieces of 1300 bytes.")
    ] = False,
    flood: Annotated[
        bool, typer.Option("--flood", help="Send all, though nobody has announced topics.")
    ] = False,
    byte_order: Annotated[
        str, typer.Option("--byte-order", help="Of our topic lists: little or big.")
    ] = "little",
    router: Annotated[
        str, typer.Option(help="By receiver field (simple) or bitmap (intelligent).")
    ] = INTELLIGENT,
    *,
    bus: Bus,
) -> None:
    """Join a network of RODOS nodes to the bus.

    Topics there are subjects here, both ways. Announces what the bus wants by TOPIC_LIST, and sends
    what RODOS nodes announced. Messages of more than 1300 bytes are dropped and counted, unless
    --split.
    """
    subjects, places = _read_map(topics), [_read_place(one) for one in udp]
    with open_node(bus) as node, RodosGateway(
        node, subjects, open_links(places), number=number, split=split, flood=flood,
        byte_order=byte_order, router=router,
    ) as joined:  # fmt: skip
        heard = ", ".join(":".join(map(str, link.address)) for link in joined.links)
        note(f"RODOS node {joined.statistics().number} at {heard}")
        _wait()
        done = joined.statistics()
    note(f"{plural(done.received, 'message')} from RODOS, {plural(done.sent, 'datagram')} to it")
    if done.too_long:
        note(f"{plural(done.too_long, 'message')} too long for RODOS: send less, or use --split")


def _read_place(text: str) -> tuple[tuple[str, int], list[tuple[str, int]]]:
    at, _, targets = text.partition("=")
    return _read_address(at), [_read_address(one) for one in targets.split("+") if one]


def _read_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 <= int(port) <= 65_535:
        raise typer.BadParameter(f"--udp {text}: give PORT or ADDRESS:PORT")
    return host, int(port)


def _read_map(texts: list[str]) -> dict[int, str]:
    topics: dict[int, str] = {}
    for text in texts:
        number, is_given, subject = text.partition("=")
        if not is_given or not number.isdecimal():
            raise typer.BadParameter(f"--map {text}: write TOPICID=SUBJECT, such as 1001=/sat/temp")
        if int(number) in topics:
            raise typer.BadParameter(f"--map: topic {number} is there twice")
        topics[int(number)] = subject
    return topics
