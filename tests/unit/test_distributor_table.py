"""The table of Distributor's parameters in docs/ names options that exist, with their defaults."""

import ast
import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import hubbub
from hubbub import Channel, Faults, Node, Settings
from hubbub.runtime.logs import CONCERNS
from tests.tables import read_table, section

TEXT = (Path(__file__).parents[2] / "docs" / "distributor.md").read_text()

# Every parameter of its two configuration objects, the ones that were removed there included.
APPLICATION = {
    "applicationName", "ethDevice", "localHostAddress", "logFlags", "logToConsole", "logToFile",
    "timerThreads", "mgmtControlEnabled", "mgmtHttpEnabled", "mgmtAddress", "mgmtPort",
    "mgmtHttpPort", "mgmtInterface", "broadcastGatewayAddress", "broadcastGatewayPort",
    "isBroadcastGateway", "cmaAddress", "cmaPort", "cmaInterface",
}  # fmt: skip
CONNECTION = {
    "mca", "mcaPort", "mcaNetworkInterface", "TTL", "readThreads", "ipBufferSize", "segmentSize",
    "smallSegmentSize", "configurationInterval", "configurationMaxLost", "heartbeatInterval",
    "heartbeatMaxLost", "sendHoldbackDelay", "sendHoldbackThreshold", "maxBandwidth",
    "flowRateRecalculateInterval", "senderIdPort", "senderIdPortOffset",
    "retransmissionServerHoldback", "retransmissionTimeout", "retransmissionRetries",
    "retransmissionMaxCacheSize", "retransmissionCacheLifeTime",
    "retransmissionCacheCleanInterval", "naggingWindowInterval", "naggingCheckInterval",
    "naggingMaxRetransmissions", "maxReceiveQueueElements", "statisticsLogInterval",
    "statisticFilename", "fakeXtaErrorRate", "fakeRcvErrorRate",
}  # fmt: skip


class Row(NamedTuple):
    """One line of a table."""

    theirs: str
    their_default: str
    ours: str
    default: str
    unit: str
    remark: str


def rows(title: str) -> list[Row]:
    return [Row(*cells) for cells in read_table(section(TEXT, title))]


ROWS = rows("Application") + rows("Connection")


def defaults() -> dict[str, Any]:
    """Name every option there is, as the table writes it, with its default."""
    found = {
        f"{kind.__name__}.{field.name}": field.default
        for kind in (Settings, Channel, Faults)
        for field in fields(kind)
    }
    for prefix, function in (("", hubbub.open), ("subscribe.", Node.subscribe)):
        for name, parameter in inspect.signature(function).parameters.items():
            found[prefix + name] = parameter.default
    return found


def test_every_parameter_of_both_objects_is_there() -> None:
    assert {row.theirs for row in rows("Application")} == APPLICATION
    assert {row.theirs for row in rows("Connection")} == CONNECTION


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.theirs}-{row.ours}")
def test_our_name_exists_with_this_default_or_the_row_says_why_not(row: Row) -> None:
    assert row.their_default
    if row.ours == "dropped":
        assert len(row.remark) > 10 and not row.default and not row.unit
        return
    known = defaults()
    name = row.ours.strip("`")
    assert name in known
    default = ast.literal_eval(row.default.strip("`"))
    assert (default, type(default)) == (known[name], type(known[name]))
    assert row.unit


def test_options_that_a_remark_mentions_exist() -> None:
    known = {name.rpartition(".")[2] for name in defaults()}
    mentioned = {word for row in ROWS for word in re.findall(r"`([a-z_]+)`", row.remark)}
    assert "delivery_threads_max" in mentioned
    assert mentioned - {"logging"} <= known


def test_every_log_flag_has_a_logger_that_exists() -> None:
    paragraph = TEXT.split("The log flags are")[1].split("\n\n")[0]
    named = set(re.findall(r"`([a-z.]+)`", paragraph)) - {"logging", "hubbub."}
    assert named == set(CONCERNS)
