"""All commands under one name. Help is plain text: it starts twice as fast without rich."""

import sys
from typing import Annotated

import typer

from hubbub.cli import (
    bench,
    consume,
    doctor,
    export,
    gateway,
    graph,
    info,
    ls,
    pipeline,
    play,
    produce,
    ps,
    pub,
    rec,
    report,
    schedule,
    services,
    simulate,
    store,
    sub,
    watch,
)
from hubbub.cli.terminal import note
from hubbub.cli.top.command import top
from hubbub.errors import HubbubError

app = typer.Typer(
    name="hubbub",
    help="A message bus without a hub: publish, subscribe, measure and look after it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("pub")(pub.pub)
app.command("sub")(sub.sub)
app.command("rec")(rec.rec)
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("schedule")(schedule.schedule)
app.command("services")(services.services)
app.command("ring")(services.ring)
app.command("hz")(watch.hz)
app.command("bw")(watch.bw)
app.command("delay")(watch.delay)
app.command("ps")(ps.ps)
app.command("top")(top)
app.command("ls")(ls.ls)
app.command("info")(info.info)
app.command("graph")(graph.graph)
app.command("play")(play.play)
app.command("export")(export.export)
app.command("report")(report.report)
app.add_typer(services.app, name="service")
app.add_typer(gateway.app, name="gateway")
app.add_typer(store.app, name="store")
app.add_typer(pipeline.app, name="pipeline")
app.command("bench")(bench.bench)
app.command("simulate")(simulate.simulate)
app.command("doctor")(doctor.doctor)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        print(f"hubbub {version('hubbub')}")
        raise typer.Exit


@app.callback()
def _common(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the command of the arguments; what Hubbub raises on purpose is one line and exit 2."""
    # A terminal or locale that cannot show a character must not end the command.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="hubbub")
    except HubbubError as error:
        note(str(error))
        raise SystemExit(2) from None
