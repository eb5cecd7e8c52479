"""`hubbub bench`: how fast the bus is here, with publisher and subscribers as processes."""

import os
import secrets
from collections import Counter
from typing import Annotated, Any

import typer

from hubbub.cli.bench_plan import DATAGRAM, LATENCY, Benchmark, Mode, Outcome, Plan
from hubbub.cli.options import Json, Log, LoopbackInterface
from hubbub.cli.quantities import at_least
from hubbub.cli.rates import percentile
from hubbub.cli.session import EXIT_LOST, end_on_sigterm
from hubbub.cli.terminal import LOOPBACK, note, plural, print_json, size
from hubbub.links.listening import ListenAt, address_text, open_listener

LINKS = ("auto", "inproc", "local", "tcp", "multicast", "datagram")


def bench(
    benchmark: Annotated[Benchmark, typer.Argument(help="What to measure.", show_default=False)],
    link: Annotated[
        str,
        typer.Option(
            help="inproc (one process), local, tcp, multicast, datagram (best effort, unrepaired),"
            " or auto: the best there is."
        ),
    ] = "auto",
    size_bytes: Annotated[
        int, typer.Option("--size", min=1, metavar="BYTES", help="Payload of a message.")
    ] = 64,
    seconds: Annotated[
        float,
        typer.Option(parser=at_least(0.1), metavar="DURATION", help="How long to publish."),
    ] = 5.0,
    subscribers: Annotated[int, typer.Option(min=1, max=63, help="Subscribers.")] = 1,
    loss: Annotated[
        float, typer.Option(min=0, max=0.9, help="Share of frames each node loses on purpose.")
    ] = 0.0,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Messages a second; without it all it can.")
    ] = None,
    mode: Annotated[
        Mode, typer.Option(help="Callback on the I/O thread, or a thread that receives.")
    ] = "inline",
    interface: LoopbackInterface = LOOPBACK,
    as_json: Json = False,
    log: Log = None,
) -> None:
    """Measure throughput or round trips, in a domain of its own.

    Throughput: as many messages as receivers take, and how old they are when they arrive. Latency:
    round trips one after the other; the first subscriber answers, the others listen. Exits with 3
    if a message was lost or came twice; by datagram, which repairs nothing, a loss is only told.
    """
    if link not in LINKS:
        raise typer.BadParameter(f"link {link!r}: there is {', '.join(LINKS)}")
    if loss and link not in ("multicast", "datagram"):
        if link != "auto":
            raise typer.BadParameter(
                "only multicast and datagram lose frames on purpose: --link multicast"
            )
        link = "multicast"
    from hubbub.cli import bench_inproc, bench_processes

    end_on_sigterm()
    if log is not None:
        os.environ["HUBBUB_LOG"] = log  # For the processes of the benchmark.
    plan = Plan(
        benchmark=benchmark, link=link, size=size_bytes, seconds=seconds, subscribers=subscribers,
        loss=loss, rate=rate, mode=mode, interface=interface,
        domain=f"bench-{secrets.token_hex(8)}",
        peers=_free_addresses(interface, subscribers) if link == "tcp" else [],
    )  # fmt: skip
    run = bench_inproc.run if link == "inproc" else bench_processes.run
    result = summarise(plan, *run(plan))
    if as_json:
        print_json(result)
    else:
        _print(result)
    is_broken = result["duplicates"] or (result["lost"] and link != DATAGRAM)
    raise typer.Exit(EXIT_LOST if is_broken else 0)


def _free_addresses(interface: str, count: int) -> list[str]:
    """Find where subscribers can listen."""
    listeners = [open_listener(interface, ListenAt("", 0), 0).socket for _ in range(count)]
    addresses = [address_text(listener.getsockname()) for listener in listeners]
    for listener in listeners:
        listener.close()
    return addresses


def summarise(plan: Plan, published: Outcome, received: list[Outcome]) -> dict[str, Any]:
    """Put what the processes say into one object."""
    everybody = [published, *received]
    if plan.benchmark == LATENCY:
        answers = published.messages - published.dropped
        arrived, expected = answers, published.messages
        rate = answers / published.seconds if published.seconds else 0.0
        measured = [published]
    else:
        arrived, expected = sum(o.messages for o in received), published.messages * len(received)
        rate = min((o.messages / o.seconds if o.seconds else 0.0) for o in received)
        measured = received
    samples_ns = [sample for outcome in measured for sample in outcome.quantiles_ns]
    return {
        "benchmark": plan.benchmark,
        "link": plan.link,
        "interface": plan.interface,
        "mode": plan.mode,
        "size": plan.size,
        "subscribers": plan.subscribers,
        "loss": plan.loss,
        "rate": plan.rate,
        "seconds": round(published.seconds, 3),
        "messages_per_second": round(rate, 1),
        "megabytes_per_second": round(rate * plan.size / 1e6, 3),
        "latency_kind": "round trip" if plan.benchmark == LATENCY else "one way, under load",
        "p50_us": percentile(samples_ns, 0.5) / 1e3,
        "p99_us": percentile(samples_ns, 0.99) / 1e3,
        "max_us": max(outcome.longest_ns for outcome in measured) / 1e3,
        "sent": published.messages,
        "received": arrived,
        "lost": expected - arrived,
        "losses": dict(sum((Counter(outcome.losses) for outcome in received), Counter())),
        "duplicates": sum(outcome.duplicates for outcome in everybody),
        "repairs": sum(outcome.repairs for outcome in everybody),
        "naks": sum(outcome.naks for outcome in everybody),
        "cpu_seconds": round(sum(outcome.cpu_seconds for outcome in everybody), 3),
    }


def _print(result: dict[str, Any]) -> None:
    rows = _rows(result)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")
    if result["lost"]:
        note("lost: " + ", ".join(f"{count:,} {why}" for why, count in result["losses"].items()))


def _rows(result: dict[str, Any]) -> list[tuple[str, str]]:
    who = f"{plural(result['subscribers'], 'subscriber')}, {result['mode']}"
    where = f"{result['link']} on {result['interface']}, {result['loss']:.0%} loss"
    ages = [f"{name} {result[f'{name}_us']:,.0f} us" for name in ("p50", "p99", "max")]
    return [
        (result["benchmark"], f"{size(result['size'])} messages, {who}, {where}"),
        ("messages/s", f"{result['messages_per_second']:,.0f}"),
        ("MB/s", f"{result['megabytes_per_second']:,.1f}"),
        (result["latency_kind"], ", ".join(ages)),
        ("sent, received", f"{result['sent']:,}, {result['received']:,}"),
        ("lost, duplicates", f"{result['lost']:,}, {result['duplicates']:,}"),
        ("repairs, NAKs", f"{result['repairs']:,}, {result['naks']:,}"),
        ("CPU", f"{result['cpu_seconds']:.2f} s in all processes"),
    ]
