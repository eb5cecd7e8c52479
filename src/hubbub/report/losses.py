"""From `gaps`, `quarantine` and `period_compliance` to what was lost, put aside and late."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hubbub.limits import REPORT_ROWS_MAX
from hubbub.report.figures import Gap, Loss, Period, Quarantined
from hubbub.report.words import who

_SUBJECTS_SHOWN = 4


def to_us(table: pa.Table, *names: str) -> pa.Table:
    """Turn columns of times into microseconds since 1970."""
    for name in names:
        place = table.column_names.index(name)
        table = table.set_column(place, name, table[name].cast(pa.int64()))
    return table


def list_gaps(gaps: pa.Table) -> tuple[Gap, ...]:
    """Return the largest holes, as many as a table has room for."""
    rows = (
        to_us(gaps, "after", "before")
        .sort_by(
            [("count", "descending"), ("subject", "ascending"), ("first_sequence", "ascending")]
        )
        .slice(0, REPORT_ROWS_MAX)
    )
    return tuple(_gap(row) for row in rows.to_pylist())


def _gap(row: dict[str, Any]) -> Gap:
    return Gap(
        subject=row["subject"] or "",
        source=who(row["source_name"], row["source_id"]),
        source_id=row["source_id"] or "",
        incarnation=row["incarnation"] or 0,
        first=row["first_sequence"] or 0,
        last=row["last_sequence"] or 0,
        count=row["count"] or 0,
        after_us=row["after"],
        before_us=row["before"],
        reported_as=row["reported_as"] if row["reported"] else None,
        lost_by=row["lost_by"] or "unknown",
    )


def add_up_losses(gaps: pa.Table) -> tuple[Loss, ...]:
    """Add up the holes of each topic by who lost and who reported them; the largest first."""
    told = pc.if_else(pc.fill_null(gaps["reported"], False), gaps["reported_as"], None)
    table = to_us(gaps, "after", "before").append_column("told", told)
    # A hole is between two messages; one of them may be missing, as nothing follows the last.
    table = table.append_column("from", pc.coalesce(table["after"], table["before"]))
    table = table.append_column("to", pc.coalesce(table["before"], table["after"]))
    keys = ["subject", "source_id", "source_name", "lost_by", "told"]
    sums = table.group_by(keys).aggregate(
        [("count", "sum"), ("count", "count"), ("from", "min"), ("to", "max")]
    )
    found = [
        Loss(
            subject=row["subject"] or "",
            source=who(row["source_name"], row["source_id"]),
            lost_by=row["lost_by"] or "unknown",
            reported_as=row["told"],
            messages=row["count_sum"] or 0,
            gaps=row["count_count"],
            first_us=row["from_min"],
            last_us=row["to_max"],
        )
        for row in sums.to_pylist()
    ]
    return tuple(sorted(found, key=lambda one: (-one.messages, one.subject, one.source)))


def list_quarantined(quarantine: pa.Table) -> tuple[Quarantined, ...]:
    """Count the rows that were put aside, by reason."""
    table = to_us(quarantine, "received")
    sums = table.group_by("reason").aggregate(
        [
            *(([], "count_all"), ("subject", "distinct"), ("detail", "min")),
            *(("received", "min"), ("received", "max")),
        ]
    )
    found = [
        Quarantined(
            reason=row["reason"] or "unknown",
            rows=row["count_all"],
            subjects=tuple(sorted(filter(None, row["subject_distinct"])))[:_SUBJECTS_SHOWN],
            first_us=row["received_min"],
            last_us=row["received_max"],
            example=row["detail_min"] or "",
        )
        for row in sums.to_pylist()
    ]
    return tuple(sorted(found, key=lambda one: (-one.rows, one.reason)))


def list_periods(compliance: pa.Table, who_kept: str = "source") -> tuple[Period, ...]:
    """Add up the slots of each producer, or of each consumer; those that missed most come first."""
    counts = ("slots", "met", "missed", "late")
    node_id, name = f"{who_kept}_id", f"{who_kept}_name"
    sums = compliance.group_by(["subject", node_id, name, "period_ns"]).aggregate(
        [(one, "sum") for one in counts]
    )
    found = [
        Period(
            subject=row["subject"] or "",
            source=who(row[name], row[node_id]),
            period_ns=row["period_ns"] or 0,
            **{name: row[f"{name}_sum"] or 0 for name in counts},
        )
        for row in sums.to_pylist()
    ]
    found.sort(key=lambda one: (-one.missed, -one.late, one.subject, one.source, one.period_ns))
    return tuple(found)
