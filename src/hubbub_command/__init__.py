"""The `hubbub` command, beside the package: Ctrl-C ends it quietly also while that is imported."""


def main() -> None:
    """Import the command line, and run it."""
    try:
        from hubbub.cli.main import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()
