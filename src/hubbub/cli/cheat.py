"""`hubbub cheat`: the commands one needs, on one screen."""

import typer

from hubbub.cli.screen import write_until_the_end

SHEET = """\
Talk                hubbub sub '/plant/...'
                    hubbub pub /plant/line1/temp 21.5 -r 10
See what is there   hubbub top                 hubbub ls      hubbub ps
How often, how late hubbub hz '/...'           hubbub delay '/...'
Record, play again  hubbub rec '/plant/...' -o recording
                    hubbub play recording
Make sense of it    hubbub pipeline run recording --out tables
                    hubbub report tables -o report.html
Something is wrong  hubbub doctor

Subjects            /plant/line1/temp; * is one level, a last ... the rest
One machine         --interface 127.0.0.1      HUBBUB_INTERFACE=127.0.0.1
A bus of your own   --domain NAME              HUBBUB_DOMAIN=NAME
Every option        hubbub config show         --config hubbub.toml
For programs        --json, on nearly every command
Exit codes          0 done   1 nothing came   2 error   3 lost   130 Ctrl-C
All of them         hubbub --help              hubbub COMMAND --help\
"""


def cheat() -> None:
    """Show the ten commands one needs."""

    def show() -> int:
        print(SHEET)
        return 0

    raise typer.Exit(write_until_the_end(show))
