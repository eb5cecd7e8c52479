"""The house stays tidy: who may import whom, and the rules of CONTRIBUTING a machine can check.

Each rule is a function from one file to its faults, and is itself tried on a file that breaks it.
"""

import ast
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple

import pytest

import hubbub
from hubbub.cli.main import main

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70

# What may be longer than the bound, as "path" or "path:function", and why.
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}

FOUNDATION = {"errors", "limits", "given", "subjects", "message", "events"}
API = {
    *("", "node", "publisher", "subscription", "channel", "connection", "opening"),
    *(
        "awareness",
        "loan",
        "neighbours",
        "publisher_options",
        "repeats",
        "schema",
        "sinks",
        "telling",
    ),
    *("statistics", "closing", "configuration"),
}
API |= {"producer", "consumer", "data_types", "schedule", "vehicle", "mail", "addresses"}
API |= {"service", "services", "service_host", "service_sending", "service_options"}
API |= {"service_statistics", "subject_services", "introductions", "node_host", "node_options"}
API |= {"subscription_options", "bare_topics", "newcomers"}
SHELL = {"links", "runtime"}
PURE = {"wire", "protocol"}
HIGH = {"store", "recorder", "pipeline", "report", "gateway"}

# Each room, and all that it may import from beside itself. A new room has to be entered here.
LAYERS: list[tuple[set[str], set[str]]] = [
    (FOUNDATION, set()),
    ({"wire"}, FOUNDATION),
    ({"protocol"}, FOUNDATION | {"wire"}),
    ({"simulation"}, FOUNDATION | PURE),
    (SHELL, FOUNDATION | PURE),
    ({""}, FOUNDATION | PURE | SHELL | API | {"recorder"}),  # It lists what is public.
    (API, FOUNDATION | PURE | SHELL),
    ({"store"}, FOUNDATION),
    ({"recorder"}, FOUNDATION | API | {"store", "protocol", "runtime"}),
    ({"gateway"}, FOUNDATION | API | {"protocol", "runtime", "wire"}),
    ({"pipeline"}, FOUNDATION | API | {"store", "recorder", "simulation", "protocol"}),
    ({"pyspark_hubbub"}, {"pipeline"}),
    ({"hubbub_command"}, {"cli"}),
    ({"report"}, FOUNDATION | {"store", "pipeline"}),
    ({"cli", "__main__"}, FOUNDATION | PURE | SHELL | API | HIGH | {"simulation"}),
]

# Clocks, input and output, threads and entropy, under whatever name they come.
IMPURE = {
    *("socket", "ssl", "select", "selectors", "os", "signal", "subprocess", "ctypes"),
    *("time", "datetime", "asyncio", "threading", "multiprocessing", "concurrent"),
    *("secrets", "uuid"),
}
OPEN_WORK = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")


parse = cache(ast.parse)  # Every rule looks at every file.


class File(NamedTuple):
    """One Python file, named by its path from the root of the project."""

    path: str
    text: str

    @property
    def module(self) -> str:
        name = self.path.removeprefix("src/").removesuffix(".py").replace("/", ".")
        return name.removesuffix(".__init__")

    @property
    def package(self) -> str:
        is_package = self.path.endswith("__init__.py")
        return self.module if is_package else self.module.rpartition(".")[0]

    @property
    def room(self) -> str:
        return room_of(self.module) if self.module.split(".")[0] == "hubbub" else self.module

    @property
    def tree(self) -> ast.Module:
        return parse(self.text)


Rule = Callable[[File], Iterator[str]]


def files(*folders: str) -> list[File]:
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return [File(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths]


SOURCES = files("src")
ALL = files("src", "tests", "benchmarks", "examples")
MODULES = {file.module for file in SOURCES}


def room_of(module: str) -> str:
    return [*module.split("."), ""][1]


def imports(file: File) -> Iterator[tuple[str, str]]:
    """Name every import, wherever it stands, as (module, name); no name is a whole module."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), file.package)
            yield from ((module, alias.name) for alias in node.names)


def layer_faults(file: File) -> Iterator[str]:
    allowed = next((own | others for own, others in LAYERS if file.room in own), None)
    if allowed is None:
        yield f"{file.path} is in no layer: enter its room into LAYERS"
        return
    for module, name in imports(file):
        if module.split(".")[0] != "hubbub":
            continue
        is_module = module == "hubbub" and f"hubbub.{name}" in MODULES
        room = name if is_module else room_of(module)
        if room not in allowed:
            yield f"{file.path} imports {module} {name}: not from this layer"


def purity_faults(file: File) -> Iterator[str]:
    if file.room not in PURE:
        return
    for module, name in imports(file):
        if module.split(".")[0] in IMPURE:
            yield f"{file.path} imports {module}: a pure layer has it passed in"
        if module == "random" and name != "Random":
            yield f"{file.path} uses shared randomness: take a `Random` as an argument"
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call) and ast.unparse(node) == "Random()":
            yield f"{file.path}:{node.lineno} makes a Random without a seed"


def docstring_faults(file: File) -> Iterator[str]:
    if not (ast.get_docstring(file.tree) or "").strip():
        yield f"{file.path} has no docstring"


def print_faults(file: File) -> Iterator[str]:
    if file.room == "cli":
        return
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
            yield f"{file.path}:{node.lineno} prints: only the command line does"


def open_work_faults(file: File) -> Iterator[str]:
    for number, line in enumerate(file.text.splitlines(), 1):
        if OPEN_WORK.search(line):
            yield f"{file.path}:{number} leaves work open: {line.strip()}"


def file_length_faults(file: File) -> Iterator[str]:
    count = len(file.text.splitlines())
    if count > FILE_LINES_MAX and file.path not in LONG_FILES:
        yield f"{file.path} has {count} lines, at most {FILE_LINES_MAX}"


def long_functions(file: File) -> Iterator[tuple[str, int]]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            count = node.end_lineno - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                yield f"{file.path}:{node.name}", count


def function_length_faults(file: File) -> Iterator[str]:
    for function, count in long_functions(file):
        if function not in LONG_FUNCTIONS:
            yield f"{function} has {count} lines, at most {FUNCTION_LINES_MAX}"


SOURCE_RULES: list[Rule] = [
    layer_faults,
    purity_faults,
    docstring_faults,
    print_faults,
    function_length_faults,
]
RULES_FOR_ALL: list[Rule] = [open_work_faults, file_length_faults]


@pytest.mark.parametrize("rule", SOURCE_RULES, ids=lambda rule: rule.__name__)
def test_every_source_file_keeps_the_rule(rule: Rule) -> None:
    assert SOURCES
    assert [fault for file in SOURCES for fault in rule(file)] == []


@pytest.mark.parametrize("rule", RULES_FOR_ALL, ids=lambda rule: rule.__name__)
def test_every_file_keeps_the_rule(rule: Rule) -> None:
    assert [fault for file in ALL for fault in rule(file)] == []


PLANTED: list[tuple[Rule, str, str]] = [
    (layer_faults, "wire/x", "from hubbub.protocol import core"),
    (layer_faults, "wire/x", "from ..protocol.core import Core"),
    (layer_faults, "errors", "def f():\n    import hubbub.wire.header"),
    (layer_faults, "protocol/x", "import hubbub"),
    (layer_faults, "protocol/x", "from hubbub import Node"),
    (layer_faults, "protocol/__init__", "from .. import open"),
    (layer_faults, "protocol/x", "from hubbub.runtime.loop import Loop"),
    (layer_faults, "simulation/x", "from hubbub.links import multicast"),
    (layer_faults, "links/x", "from hubbub.simulation import world"),
    (layer_faults, "node", "from hubbub.cli import main"),
    (layer_faults, "misc/x", "import math"),
    (purity_faults, "protocol/x", "import time"),
    (purity_faults, "protocol/x", "from os.path import join"),
    (purity_faults, "protocol/x", "def f():\n    from asyncio import sleep"),
    (purity_faults, "wire/x", "import random"),
    (purity_faults, "wire/x", "from random import randint"),
    (purity_faults, "wire/x", "from random import Random\nr = Random()"),
    (docstring_faults, "wire/__init__", "import math"),
    (print_faults, "node", "def f():\n    print(1)"),
    (open_work_faults, "node", "x = 1  # TO" + "DO later"),
    (file_length_faults, "node", "x = 1\n" * (FILE_LINES_MAX + 1)),
    (function_length_faults, "node", "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
]


@pytest.mark.parametrize(("rule", "name", "text"), PLANTED)
def test_rule_sees_a_planted_fault(rule: Rule, name: str, text: str) -> None:
    assert len(list(rule(File(f"src/hubbub/{name}.py", text)))) == 1


INNOCENT = [
    ("wire/x", "from hubbub import limits\nfrom hubbub.errors import HubbubError"),
    ("protocol/x", "from random import Random\n\ndef f(r: Random): return Random(7)"),
    ("protocol/x", "from hubbub.wire import header\nfrom .burst import Burst"),
    ("runtime/x", "import time, os\nfrom hubbub.links import multicast"),
    ("cli/x", "import hubbub\nfrom hubbub.simulation import world\nprint(1)"),
]


@pytest.mark.parametrize(("name", "text"), INNOCENT)
def test_rules_let_the_innocent_pass(name: str, text: str) -> None:
    file = File(f"src/hubbub/{name}.py", f'"""Say something."""\n{text}\n')
    assert [fault for rule in SOURCE_RULES + RULES_FOR_ALL for fault in rule(file)] == []


def test_every_folder_of_the_package_is_a_package() -> None:
    folders = {path.parent for path in SRC.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_every_exception_from_a_length_has_a_reason_and_is_still_needed() -> None:
    long_files = {file.path for file in ALL if len(file.text.splitlines()) > FILE_LINES_MAX}
    long = {function for file in SOURCES for function, _ in long_functions(file)}
    assert LONG_FILES.keys() <= long_files
    assert LONG_FUNCTIONS.keys() <= long
    assert all(reason.strip() for reason in (LONG_FILES | LONG_FUNCTIONS).values())


def test_every_public_name_is_documented() -> None:
    public = {name: getattr(hubbub, name) for name in hubbub.__all__}
    assert public
    assert [name for name, value in public.items() if not is_documented(value)] == []


def is_documented(value: object) -> bool:
    """Look for a docstring of the value's own; a plain constant cannot have one."""
    if not (inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)):
        return True
    text = (value.__doc__ or "").strip()
    # Data classes and named tuples without a docstring are given their signature for one.
    return bool(text) and not text.startswith(f"{value.__name__}(")


def test_ci_runs_exactly_what_a_desk_runs() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-1] == "exec make test"


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_command_without_its_extra_says_in_one_line_what_to_install(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit) as exited:
        main()
    assert exited.value.code == 2
    message = "hubbub: the command line needs typer and rich: pip install 'hubbub[cli]'\n"
    assert capsys.readouterr().err == message
