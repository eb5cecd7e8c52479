"""Run a thousand seeds of every scenario, and keep in the repository which were green.

That takes hours, so it goes on where it stopped, also in another clone: `counted.txt` names the
state of the code that its seeds were green on. Code that does anything else begins the count anew;
comments, docstrings and the planted bugs count for nothing.
"""

import argparse
import ast
import os
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from hashlib import sha1
from itertools import groupby, islice
from pathlib import Path

from hubbub.simulation import list_scenarios
from hubbub.simulation.runner import run_all

ROOT = Path(__file__).parents[2]
COUNTED = Path(__file__).with_name("counted.txt")
SEEDS = 1000
_PIECE_SEEDS = 25
_ROOMS = ("protocol", "wire", "simulation")
_FILES = ("errors.py", "events.py", "limits.py", "message.py", "subjects.py")
_TITLE = "# Seeds that were green, by scenario, on one state of the code; `make seeds` goes on."
Piece = tuple[str, list[int]]


def state(package: Path = ROOT / "src" / "hubbub") -> str:
    """Return what tells the code that runs depend on from any other."""
    found = [file for room in _ROOMS for file in sorted((package / room).rglob("*.py"))]
    digest = sha1()
    for file in [*found, *(package / name for name in _FILES if (package / name).exists())]:
        if not file.name.startswith("bugs"):
            digest.update(file.relative_to(package).as_posix().encode())
            digest.update(_without_words(file.read_text()).encode())
    return digest.hexdigest()[:12]


def _without_words(code: str) -> str:
    """Return code without its comments and docstrings."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        is_room = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if is_room and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def load(text: str, now: str) -> dict[str, set[int]]:
    """Read which seeds were green, if it was on this state."""
    lines = text.splitlines()[1:]
    if not lines or lines[0] != f"state {now}":
        return {}
    counted: dict[str, set[int]] = {}
    for line in lines[1:]:
        name, *ranges = line.split()
        bounds = (part.partition(":") for part in ranges)
        counted[name] = {seed for a, _, b in bounds for seed in range(int(a), int(b))}
    return counted


def dump(counted: dict[str, set[int]], now: str) -> str:
    """Write which seeds were green."""
    lines = [f"{name} {' '.join(_ranges(seeds))}" for name, seeds in sorted(counted.items())]
    return "\n".join([_TITLE, f"state {now}", *lines, ""])


def _ranges(seeds: Iterable[int]) -> Iterator[str]:
    for _, group in groupby(enumerate(sorted(seeds)), lambda pair: pair[1] - pair[0]):
        run = [seed for _, seed in group]
        yield f"{run[0]}:{run[-1] + 1}"


def missing(names: Iterable[str], counted: dict[str, set[int]], seeds: int) -> Iterator[Piece]:
    """Return what is left to do, some seeds of each scenario at a time."""
    names = list(names)
    for first in range(0, seeds, _PIECE_SEEDS):
        some = range(first, min(first + _PIECE_SEEDS, seeds))
        for name in names:
            left = [seed for seed in some if seed not in counted.get(name, ())]
            if left:
                yield name, left


def count(work: list[Piece], counted: dict[str, set[int]], now: str) -> int:
    """Run seeds, and write down what is green as soon as it is; return how many failed."""
    failed = 0
    runs = run_all([(name, seed) for name, seeds in work for seed in seeds], os.cpu_count() or 1)
    for done, (name, seeds) in enumerate(work, 1):
        results = list(islice(runs, len(seeds)))
        counted.setdefault(name, set()).update(one.seed for one in results if one.ok)
        COUNTED.with_suffix(".new").write_text(dump(counted, now))
        COUNTED.with_suffix(".new").replace(COUNTED)
        failures = [f"{name} {one.seed}: {one.failure.strip()}" for one in results if not one.ok]
        failed += len(failures)
        print(*failures, f"{done} of {len(work)}: {name}", sep="\n", flush=True)
    return failed


def main() -> int:
    """Run what is not counted yet."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("patterns", nargs="*", default=["*"], help="scenarios, such as services_*")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="so many of each")
    options = parser.parse_args()
    names = [
        name for name in list_scenarios() if any(fnmatch(name, one) for one in options.patterns)
    ]
    now = state()
    counted = load(COUNTED.read_text() if COUNTED.exists() else "", now)
    work = list(missing(names, counted, options.seeds))
    print(f"state {now}: {sum(len(seeds) for _, seeds in work)} runs to do", flush=True)
    try:
        failed = count(work, counted, now)
    except KeyboardInterrupt:
        print("interrupted; what was green is kept")
        return 130
    print(f"{failed} failed" if failed else "all green")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
