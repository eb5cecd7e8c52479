"""Bytes on the wire have one order on every machine: no struct is native, no integer is cast."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "src" / "hubbub"
FILES = [path for room in ("wire", "protocol") for path in sorted((ROOT / room).glob("*.py"))]
CALLS = {"Struct", "pack", "pack_into", "unpack", "unpack_from", "iter_unpack", "calcsize"}
# A format that is not ours says its orders, and they are not this machine's either.
FOREIGN = {"rodos.py": ("!", "<", ">")}


def faults(text: str, orders: tuple[str, ...] = ("!",)) -> Iterator[str]:
    """Name what depends on the machine."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in ("cast", "byteorder"):
            yield f"line {node.lineno}: .{node.attr}"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", "")}
            if names & {"array", "ctypes", "numpy"}:
                yield f"line {node.lineno}: import"
        elif isinstance(node, ast.Call):
            yield from call_faults(node, orders)


def call_faults(call: ast.Call, orders: tuple[str, ...]) -> Iterator[str]:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name in CALLS and call.args and (form := format_of(call.args[0])) is not None:
        is_plain_bytes = re.fullmatch(r"[0-9sx]*", form) is not None
        if not (form.startswith(orders) or is_plain_bytes):
            yield f"line {call.lineno}: {name}({form!r})"
    elif name in ("to_bytes", "from_bytes"):
        order = call.args[1] if len(call.args) > 1 else None
        if not (isinstance(order, ast.Constant) and order.value == "big"):
            yield f"line {call.lineno}: {name} without 'big'"


def format_of(argument: ast.expr) -> str | None:
    """Read a format that is written out; None: it is something else."""
    if isinstance(argument, ast.BinOp):
        argument = argument.left
    if isinstance(argument, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "1" for part in argument.values]
        return "".join(str(part) for part in parts)
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    return None


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_nothing_on_the_wire_has_the_order_of_this_machine(path: Path) -> None:
    assert list(faults(path.read_text(), FOREIGN.get(path.name, ("!",)))) == []


@pytest.mark.parametrize(
    "line",
    [
        'Struct("IQ")', 'Struct("=IQ")', 'Struct("<I")', 'struct.pack(f"{n}Q", 1)', 'pack("@I", 1)',
        'n.to_bytes(8, "little")', "int.from_bytes(data)", "int.from_bytes(data, sys.byteorder)",
        'memoryview(data).cast("I")', "import array", "from ctypes import Structure",
    ],
)  # fmt: skip
def test_rule_sees_a_planted_fault(line: str) -> None:
    assert list(faults(line)) != []


def test_rule_lets_the_innocent_pass() -> None:
    text = 'Struct("!IQ"); pack(f"!{n}I", 1); Struct(f"{n}s" * 4); n.to_bytes(8, "big"); s.pack(1)'
    assert list(faults(text)) == []
