"""All commands under one name. Help is plain text: it starts twice as fast without rich."""

import os
import sys
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from hubbub.cli import (
    bench,
    cheat,
    config,
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
    routes,
    schedule,
    services,
    simulate,
    store,
    sub,
    watch,
)
from hubbub.cli.screen import write_until_the_end
from hubbub.cli.session import COMMAND, EXIT_FAILED, EXIT_INTERRUPTED
from hubbub.cli.terminal import note
from hubbub.cli.top.command import top
from hubbub.configuration import FILE_VARIABLE
from hubbub.errors import HubbubError

_SECTIONS = {
    "Talk": "pub sub",
    "Look": "top ls ps info graph hz bw delay",
    "Record, and make sense of it": "rec play export store pipeline report",
    "Time-triggered topics": "produce consume schedule",
    "Services without multicast": "services service ring",
    "Several networks": "gateway routes",
    "This machine, and help": "doctor config bench simulate cheat",
}


_ELSEWHERE = {
    "topic": "`hubbub ls` lists topics, `sub` and `pub` print and send, `hz` and `bw` measure",
    "node": "`hubbub ps` lists nodes, `hubbub info` tells of a subject",
    "bag": "`hubbub rec` records, `hubbub play` plays",
    "record": "`hubbub rec` records",
    "echo": "`hubbub sub` prints messages",
    "list": "`hubbub ls` lists topics, `hubbub ps` nodes",
}  # What the tools of others call it.


class Commands(typer.core.TyperGroup):
    """All commands, listed by what they are for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Name the commands in the order in which somebody new needs them."""
        return " ".join(_SECTIONS.values()).split()

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; tell who comes from elsewhere what it is called here."""
        name = args[0] if args else ""
        if name in _ELSEWHERE and name not in self.commands:
            ctx.fail(f"there is no {name}: {_ELSEWHERE[name]}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each purpose, all of the same width."""
        width = max(map(len, self.commands))
        room = formatter.width - width - 6
        for title, names in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (f"{name:{width}}", self.commands[name].get_short_help_str(room))
                        for name in names.split()
                    ]
                )


app = typer.Typer(
    name="hubbub",
    cls=Commands,
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
app.command("routes")(routes.routes)
app.command("info")(info.info)
app.command("graph")(graph.graph)
app.command("play")(play.play)
app.command("export")(export.export)
app.command("report")(report.report)
app.add_typer(services.app, name="service")
app.add_typer(gateway.app, name="gateway")
app.add_typer(store.app, name="store")
app.add_typer(pipeline.app, name="pipeline")
app.command("cheat")(cheat.cheat)
app.add_typer(config.app, name="config")
app.command("bench")(bench.bench)
app.command("simulate")(simulate.simulate)
app.command("doctor")(doctor.doctor)


# Typer brings its own click, or uses the one that is there: this is the root of both.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


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
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            envvar=FILE_VARIABLE,
            metavar="FILE",
            help="Options that neither flags nor the environment give, as TOML.",
        ),
    ] = None,
) -> None:
    _use_file(config)


def _use_file(path: Path | None) -> None:
    if path is not None:
        os.environ[FILE_VARIABLE] = str(path)  # For `hubbub.open`, here and in what we start.


def command_tree() -> Any:
    """Return all commands; --config may stand behind each of them as well as before."""
    tree: Any = typer.main.get_command(app)
    [before] = [option for option in tree.params if "--config" in option.opts]
    behind = copy(before)
    behind.expose_value = False
    behind.callback = _begin
    for _, command in leaves(tree):
        command.params.append(behind)
    return tree


def _begin(context: Any, _option: Any, path: Path | None) -> None:
    """Note which command it is, and take the file that stands behind it."""
    COMMAND.set("-".join(context.command_path.split()[1:]))
    _use_file(path)


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Name the commands that do something, and not those that only have others below them."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, one in command.commands.items():
        yield from leaves(one, (*path, name))


def run() -> None:
    """Run the command of the arguments; what Hubbub raises on purpose is one line and exit 2."""
    # A terminal or locale that cannot show a character must not end the command.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        raise SystemExit(_call(command_tree()))
    except UsageError as error:
        _tell_usage(error)
    except HubbubError as error:
        note(str(error))
    except typer.Abort:  # Ctrl-C where nobody waited for it.
        raise SystemExit(EXIT_INTERRUPTED) from None
    raise SystemExit(EXIT_FAILED)


def _call(tree: Any) -> Any:
    """Run a command; where there was only help or the version to write, say if that failed."""
    try:
        code = tree(prog_name="hubbub", standalone_mode=False)
        if not COMMAND.get():
            sys.stdout.flush()
    except OSError as error:
        if COMMAND.get():  # It has begun, and tells of its own files itself.
            raise
        failed = error
        return write_until_the_end(lambda: _raise(failed))
    return code


def _raise(error: OSError) -> NoReturn:
    raise error


def _tell_usage(error: Any) -> None:
    """Say in one line what was wrong with the arguments, and where to read what is right."""
    message = error.format_message()
    if message.startswith("Usage: "):  # There were none: it is the help, and no reproach.
        write_until_the_end(lambda: print(message, flush=True) or 0)
        return
    where = "hubbub" if error.ctx is None else error.ctx.command_path
    note(f"{' '.join(message.split()).rstrip('.')}; see `{where} --help`")
