"""The `hubbub` command: says in one line what is missing, or hands over to the real thing.

The bus needs neither typer nor rich, so an installation without extras has this script but not
them. Nothing here may import them.
"""

import sys
from importlib import import_module
from importlib.util import find_spec

MISSING = "hubbub: the command line needs typer and rich: pip install 'hubbub[cli]'"


def main() -> None:
    """Run the command line, or exit with 2 when its packages are not installed."""
    if any(find_spec(package) is None for package in ("typer", "rich")):
        print(MISSING, file=sys.stderr)
        raise SystemExit(2)
    try:
        import_module("hubbub.cli.ctrl_c").reach_main_thread()
        import_module("hubbub.cli.app").run()
    except KeyboardInterrupt:  # While it was still starting: a command ends in its own way.
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
