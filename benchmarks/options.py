"""Flags that the commands of the benchmark have in common."""

import argparse
from collections.abc import Iterable
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def size_bytes(text: str) -> int:
    """Read 64, 16K or 4M."""
    unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:].upper(), 1)
    value = int(text[:-1] if unit > 1 else text) * unit
    if value < 64:
        raise argparse.ArgumentTypeError(f"{value} bytes: the smallest payload is 64 bytes")
    return value


def sizes_of(parser: argparse.ArgumentParser, text: str) -> list[int]:
    """Read payload sizes, separated by commas."""
    try:
        return [size_bytes(one) for one in text.split(",")]
    except (ValueError, argparse.ArgumentTypeError) as error:
        parser.error(f"--sizes {text}: {error}")


def rows_of(parser: argparse.ArgumentParser, text: str | None, known: Iterable[str]) -> list[str]:
    """Read rows of a table, separated by commas; nothing means all."""
    rows = text.split(",") if text else list(known)
    if unknown := [row for row in rows if row not in known]:
        parser.error(f"--only {','.join(unknown)}: there are {', '.join(known)}")
    return rows
