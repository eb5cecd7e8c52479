"""`python -m hubbub` is the command line."""

from hubbub.cli.main import main

main()
