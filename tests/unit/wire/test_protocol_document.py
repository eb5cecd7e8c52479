"""docs/protocol.md says what the code does, as far as a machine can compare them."""

import re
from pathlib import Path
from struct import Struct, calcsize

import msgspec
import pytest

from hubbub import limits
from hubbub.protocol.rendezvous.profile import PROFILES
from hubbub.protocol.rendezvous.roles import TRANSITIONS
from hubbub.wire import batch, control, header, services, timed
from hubbub.wire.control import (
    Change,
    Goodbye,
    Grant,
    GrantedStream,
    PlacedHello,
    Publication,
    Replayed,
    Step,
    Topic,
    Want,
)
from hubbub.wire.gateways import Beacon
from hubbub.wire.timed import Direct, Interest, Offer, Wanted
from tests.tables import read_table

TEXT = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
PROSE = " ".join(TEXT.split())  # Wherever its lines end.


def table(title: str) -> list[list[str]]:
    """Return the rows of the table whose first column has this title."""
    _, head, rest = TEXT.partition(f"\n| {title} |")
    assert rest, f"no table of {title}"
    return read_table(head + rest)


def test_header_table_is_the_header() -> None:
    rows = table("offset")
    assert [row[2] for row in rows] == list(header.Header._fields)
    sizes = [int(row[1]) for row in rows]
    assert [int(row[0]) for row in rows] == [sum(sizes[:place]) for place in range(len(rows))]
    assert sum(sizes) == header.HEADER_BYTES
    codes = re.findall(r"\d*[a-zA-Z]", header._HEADER.format.lstrip("!"))
    assert sizes == [calcsize("!" + code) for code in codes]


def test_kinds_are_the_kinds() -> None:
    rows = [row for row in table("kind") if row[0].isdigit()]
    assert {int(row[0]): row[1] for row in rows} == header.KIND_NAMES


@pytest.mark.parametrize("title", ["flag", "stream"])
def test_flags_and_streams_are_the_constants(title: str) -> None:
    for number, name, *_ in table(title):
        assert not name or getattr(header, name) == int(number)
    named = {int(row[0]) for row in table("stream") if row[1]}
    assert named == set(header.STREAMS)


@pytest.mark.parametrize(
    ("name", "struct"),
    [
        ("STATUS", control._STATUS),
        ("NAK, SKIP", control._NAK),
        ("range", control._RANGE),
        ("HEARTBEAT", control._HEARTBEAT),
        ("tail", control._TAIL),
        ("LOST", control._LOST),
        ("RESPONSE", timed._RESPONSE),
        ("SERVICE", services.ENVELOPE),
        ("ANSWER", services._ANSWER),
        ("CLOCK", timed._CLOCK),
    ],
)
def test_sizes_of_fixed_bodies_are_those_of_the_structs(name: str, struct: Struct) -> None:
    (row,) = (row for row in table("body") if row[0] == name)
    parts, total = row[2].split(" = ")
    assert sum(map(int, parts.split(" + "))) == int(total) == struct.size
    assert len(row[1].split(", ")) == len(parts.split(" + "))


def test_sizes_of_data_tables_are_those_of_the_structs() -> None:
    sizes = [row[1] for row in table("field")]
    assert sizes[0].endswith(f"= {batch.HEAD_BYTES}")
    assert sizes[2].endswith(f"= {batch.RUN_BYTES}")
    assert int(sizes[3]) + int(sizes[4]) == batch.TABLE_BYTES_PER_MESSAGE
    assert f"= {batch.SEGMENT_HEAD_BYTES} bytes" in TEXT


@pytest.mark.parametrize(
    ("name", "struct"),
    [
        ("HELLO", PlacedHello),
        ("publication", Publication),
        ("CHANGE", Change),
        ("step", Step),
        ("WANT", Want),
        ("GRANT", Grant),
        ("stream of a grant", GrantedStream),
        ("topic", Topic),
        ("replay of a grant", Replayed),
        ("GOODBYE", Goodbye),
        ("INTEREST", Interest),
        ("consumer of an interest", Wanted),
        ("OFFER", Offer),
        ("DIRECT", Direct),
        ("extra of a SERVICE", services.Extra),
        ("line of a list", services.Entry),
        ("BEACON", Beacon),
        ("MEMBERS", services.Members),
        ("record of a member", services.Record),
        ("NOTICE 1, result", services.Result),
        ("NOTICE 2, query", services.Query),
        ("NOTICE 3, known", services.Known),
        ("NOTICE 4, copy", services.Copy),
        ("NOTICE 5, list taken", services.ListTaken),
        ("NOTICE 6, reply", services.Reply),
        ("NOTICE 7, kept", services.Kept),
        ("NOTICE 8, inquiry", services.Inquiry),
        ("NOTICE 9, inventory", services.Inventory),
        ("service of an inventory", services.Managed),
    ],
)
def test_fields_of_typed_bodies_are_those_of_the_structs(
    name: str, struct: type[msgspec.Struct]
) -> None:
    (row,) = re.findall(rf"^\| {name} \| ([^|\n]*) \|$", TEXT, re.MULTILINE)
    assert row.split(":")[0].split(", ") == list(struct.__struct_fields__)


def test_figures_are_the_limits() -> None:
    ms = limits.MS
    assert f"version {header.MAJOR}.{header.MINOR}" in TEXT.splitlines()[0]
    assert f"every {limits.OPENING_HELLO_INTERVAL // ms} ms for {limits.OPENING // ms} ms" in PROSE
    assert f"start at {limits.TOPIC_FIRST}." in PROSE
    assert f"at least {limits.SEGMENT_STRIDE_MIN};" in PROSE
    assert f"at most {limits.NAK_BITMAP_BITS_MAX:,} frames" in PROSE
    assert f"more than {limits.MISSING_FRAMES_MAX:,}" in PROSE
    assert f"at most {limits.NODE_NAME_BYTES_MAX} characters" in PROSE
    assert f"at most {limits.SUBJECT_BYTES_MAX}." in PROSE
    assert f"K = {limits.BACKOFF_FACTOR}, GRTT at least" in PROSE
    assert f"After {limits.REPAIR_ROUNDS_MAX} requests or" in PROSE
    assert f"{limits.REPAIR_TIME_MAX // limits.SECOND} s a receiver gives up" in PROSE
    assert f"and {limits.FRAME_COST_BYTES} more" in PROSE
    assert f"{limits.STEPS_MAX:,} steps wait to be told" in PROSE
    assert f"within {limits.ANNOUNCE_SPACING // ms} ms of the last CHANGE" in PROSE
    assert f"Of one peer {limits.PATTERNS_MAX:,} patterns, {limits.PUBLICATIONS_MAX:,}" in PROSE
    assert f"first {limits.SCHEMA_NAME_BYTES_MAX} bytes of the name" in PROSE
    assert f"looks {limits.INDEX_PATIENCE // ms} ms later" in PROSE
    assert f"straight again after {limits.STRAIGHT_CALM // limits.SECOND} s" in PROSE
    assert f"if that is below {header.BITMAP_BITS}, -2" in PROSE
    heartbeat = header.HEADER_BYTES + control._HEARTBEAT.size
    heartbeat += len(header.CLASSES) * control._TAIL.size
    assert f"one HEARTBEAT of {heartbeat} bytes a second" in PROSE
    assert f"at most {limits.WANTS_MAX} consumers" in PROSE
    assert f"{limits.LEASE_MS_MIN // 1000} s or {limits.LEASE_PERIODS} times" in PROSE
    assert f"GOODBYE every {limits.GOODBYE_INTERVAL // ms} ms" in PROSE


def test_figures_of_services_are_the_limits() -> None:
    ms, second = limits.MS, limits.SECOND
    assert f"a lease of {limits.SERVICE_LEASE // second} s" in PROSE
    assert (
        f"repeated after {limits.HOP_TIMEOUT // ms} ms, doubling, at most {limits.HOP_TRIES} times"
        in PROSE
    )
    assert f"as RFC 6298 has it, up to {limits.HOP_TIMEOUT_MAX // second} s" in PROSE
    assert f"at most {limits.SERVICE_HOPS_MAX} times, and says so" in PROSE
    assert f"Those of INFO wait {limits.ACK_DELAY // ms} ms for each other" in PROSE
    assert f"or until they are of {limits.ACK_BYTES >> 10} KiB" in PROSE
    assert f"or until they are {limits.PUBLISHES_PER_ANSWER}." in PROSE
    patterns, size = limits.SERVICE_PATTERNS_MAX, limits.SERVICE_PATTERNS_BYTES_MAX
    assert f"up to {patterns} of at most {size:,} bytes" in PROSE
    assert f"fewer than {limits.BATCH_AT_ONCE} frames of the service" in PROSE
    behind = f"{limits.BATCH_HOLD_BEHIND // ms} ms where {limits.BATCH_QUIET_AT_ONCE} frames"
    assert f"at most {limits.BATCH_HOLD // ms} ms, or {behind} or more" in PROSE
    assert f"says that it has it, for {limits.PUBLISH_PATIENCE // second} s" in PROSE
    published = f"{limits.PUBLISHES_MAX:,} messages or {limits.PUBLISHES_BYTES_MAX >> 20} MiB"
    assert published in PROSE
    assert (
        f"{limits.HOP_WINDOW_BYTES_MIN >> 10} to {limits.HOP_WINDOW_BYTES_MAX >> 10} KiB" in PROSE
    )
    assert f"more than {limits.HOP_CROWDED_BYTES >> 10} KiB wait" in PROSE
    assert f"or {limits.HOP_CROWDED:,} frames, its manager answers no PUBLISH" in PROSE
    assert f"nothing for {limits.HOP_STUCK // ms} ms" in PROSE
    assert f"{limits.HOP_BACKLOG:,} frames or {limits.HOP_BACKLOG_BYTES >> 20} MiB" in PROSE
    held = f"up to {limits.HELD_REQUESTS_MAX} or {limits.HELD_REQUESTS_BYTES_MAX >> 20} MiB"
    assert f"{held} of a service, and asks those" in PROSE
    leap = limits.SERVICE_EPOCH_LEAP.bit_length() - 1
    numbers = leap + limits.ORDER_LEAP.bit_length() - 1
    assert f"at most 2^{leap} epochs (2^{numbers} numbers) further" in PROSE
    assert f"up to {limits.PULL_NODES_MAX} if they are new" in PROSE
    assert f"in parts of {limits.LIST_PART_ENTRIES} lines" in PROSE
    assert f"still comes for {limits.FORWARDER_GRACE // second} s" in PROSE
    assert f"next {limits.COPIES} nodes hold a copy" in PROSE
    assert (
        f"{limits.COPY_DELAY // ms} ms, a digest each {limits.COPY_INTERVAL // second} s" in PROSE
    )
    assert f"up to {limits.DIRECT_FAN_OUT}; beyond that" in PROSE
    assert f"to be passed on, {limits.TREE_FAN_OUT} at a time" in PROSE
    assert f"a window of {limits.SEEN_WINDOW:,} numbers" in PROSE
    assert f"at which {limits.SERVICE_REQUESTS_MAX} of them wait" in PROSE
    nodes, most = limits.INVENTORY_NODES, limits.INVENTORY_NODES_MAX
    assert f"the ids of {nodes} of them, {most:,} in all" in PROSE
    fast, seed = PROFILES["fast"], PROFILES["seed"]
    stable = f"after {fast.stable_ns // second} s (`fast`) or {seed.stable_ns // second} s (`seed`)"
    assert stable in PROSE


def test_table_of_roles_is_that_of_the_machine() -> None:
    expected = [
        [role.value, happening.value, then.value] for (role, happening), then in TRANSITIONS.items()
    ]
    assert table("role") == expected
