"""From tables to figures: all of the report that is arithmetic."""

import pyarrow as pa
import pyarrow.compute as pc

from hubbub.limits import REPORT_ROWS_MAX
from hubbub.report.figures import Figures
from hubbub.report.losses import add_up_losses, list_gaps, list_periods, list_quarantined
from hubbub.report.nodes import (
    add_up_counters,
    count_nodes,
    has_ended,
    list_elsewhere,
    list_flows,
    list_lanes,
    list_managers,
    list_slow,
)
from hubbub.report.reading import Tables
from hubbub.report.windows import (
    latencies_over_time,
    lay_out,
    list_topics,
    rates,
    repairs_by_source,
    totals,
)


def build(tables: Tables) -> Figures:
    """Make the figures of a report."""
    health, timeline = tables["topic_health"], tables["node_timeline"]
    matrix, gaps = tables["traffic_matrix"], tables["gaps"]
    windows = lay_out(health, tables.span_us)
    sums = totals(windows)
    topics, topics_in_all = list_topics(windows)
    latencies, latency = latencies_over_time(windows)
    message_rates, byte_rates = rates(windows)
    lanes, lanes_in_all = list_lanes(timeline, windows.clock)
    return Figures(
        path=tables.path,
        clock=windows.clock,
        span_us=tables.span_us,
        nodes=count_nodes(
            health["source_id"], timeline["node_id"], matrix["source_id"], matrix["receiver_id"]
        ),
        subjects=pc.count_distinct(health["subject"]).as_py(),
        messages=sums["messages"],
        bytes=sums["bytes"],
        lost=sums["lost"],
        counters=add_up_counters(tables["bus_counters"]),
        repairs=repairs_by_source(windows),
        duplicates=sums["duplicates"],
        topics=tuple(topics),
        topics_in_all=topics_in_all,
        latency=latency,
        latencies=latencies,
        message_rates=message_rates,
        byte_rates=byte_rates,
        gaps=list_gaps(gaps),
        gaps_in_all=len(gaps),
        losses=add_up_losses(gaps),
        quarantined=list_quarantined(tables["quarantine"]),
        periods=list_periods(tables["period_compliance"])[:REPORT_ROWS_MAX],
        consumers=list_periods(tables["consumer_compliance"], "node")[:REPORT_ROWS_MAX],
        lanes=lanes,
        lanes_in_all=lanes_in_all,
        slow=list_slow(timeline),
        elsewhere=list_elsewhere(timeline),
        flows=list_flows(matrix),
        managers=list_managers(tables["service_managers"]),
        open_windows=0 if has_ended(timeline) else _count_open(health["final"]),
        late=tables.late,
        missing=tables.missing,
    )


def _count_open(final: pa.ChunkedArray) -> int:
    return pc.sum(pc.invert(final)).as_py() or 0
