"""`hubbub pipeline check`: is anything missing, twice or out of order in a recording?"""

from pathlib import Path
from typing import Annotated

import typer

from hubbub.cli.options import Json
from hubbub.cli.session import end_on_sigterm
from hubbub.cli.simulate_spark import judge, print_faults
from hubbub.cli.terminal import print_json
from hubbub.errors import StoreError


def check(
    store: Annotated[
        Path,
        typer.Argument(
            metavar="STORE", help="A store, a folder with stores, or traces of a simulation."
        ),
    ],
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's master. By default this machine.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Look for messages that are missing, twice, or out of order.

    Per recorder, publisher and subject. What the bus or the recorder reported as lost is none of
    these, nor what came while no recorder ran. Exits with 1 if there is any.
    """
    if not store.exists():
        raise StoreError(f"{store} does not exist")
    from hubbub.pipeline.session import start

    end_on_sigterm()
    settings = {"spark.sql.adaptive.enabled": "true"}
    spark = start(master, name="hubbub pipeline check", settings=settings)
    try:
        faults = judge(spark, store.absolute())
    finally:
        spark.stop()
    if as_json:
        print_json({"store": str(store), "faults": faults})
    else:
        print_faults(faults, store)
    raise typer.Exit(1 if faults else 0)
