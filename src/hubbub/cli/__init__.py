"""The `hubbub` command: each subcommand is a thin user of the public API.

Printing lives here and nowhere else; nothing outside this folder imports it, or typer, or rich.
"""
