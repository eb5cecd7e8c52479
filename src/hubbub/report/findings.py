"""What the figures say, in plain words, each with its evidence and a place to look at.

The worst comes first. A finding never says more than its table: a cause is named only where the
bus or the recorder named it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Final, TypeVar

from hubbub.limits import REPORT_FINDINGS_MAX
from hubbub.report.figures import BY_BUS, BY_RECORDER, Figures, Lane, Loss, Slow, Stay, Topic
from hubbub.report.words import be, latency, moment, period, plural, share, size, span, times, were
from hubbub.subjects import OWN_SUBJECTS

One = TypeVar("One")


class Level(IntEnum):
    """How much a finding matters."""

    BAD = 0
    WARNING = 1
    NOTE = 2
    GOOD = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence about the recording."""

    level: Level
    text: str
    evidence: tuple[str, ...] = ()
    place: str = ""
    """Which section of the report shows it."""


def summarise(figures: Figures) -> str:
    """Say in one sentence what was recorded."""
    if not figures.messages:
        return "No messages."
    what = [
        plural(figures.nodes, "node"),
        plural(figures.subjects, "subject"),
        f"{plural(figures.messages, 'message')} ({size(figures.bytes)})",
    ]
    first_us, last_us = figures.span_us or (figures.clock.first_us, figures.clock.last_us)
    about = "" if figures.span_us else "at most "
    return f"{', '.join(what[:-1])} and {what[-1]} in {about}{span(last_us - first_us)}."


def find(figures: Figures) -> tuple[Finding, ...]:
    """Return everything worth saying, the worst first."""
    found = [finding for search in _SEARCHES for finding in search(figures)]
    return tuple(sorted(found, key=lambda one: one.level))  # Stable: else in the order below.


def _worst(
    all_of_them: Sequence[One], say: Callable[[One], Finding], rest: Callable[[Sequence[One]], str]
) -> Iterator[Finding]:
    """Say the first ones one by one, and the others in one sentence."""
    shown = all_of_them[:REPORT_FINDINGS_MAX]
    others = all_of_them[REPORT_FINDINGS_MAX:]
    yield from map(say, shown)
    if others:
        last = say(others[-1])
        yield Finding(last.level, rest(others), (), last.place)


def _losses(figures: Figures) -> Iterator[Finding]:
    timed = {(one.subject, one.source) for one in figures.periods}
    mine = [one for one in figures.losses if one.lost_by != BY_RECORDER]
    samples = [one for one in mine if not one.reported_as and (one.subject, one.source) in timed]
    broken = [one for one in mine if one not in samples]
    yield from _worst(broken, _say_loss, partial(_say_further, "further message"))
    yield from _worst(samples, _say_samples, partial(_say_further, "further sample"))
    known = sum(one.messages for one in figures.losses if not one.is_pause)
    if "gaps" in figures.missing or "topic_health" in figures.missing:
        return
    if known != figures.lost:
        yield Finding(
            Level.WARNING,
            f"The tables do not agree: {known:,} lost by gaps, {figures.lost:,} by topic_health.",
            ("One of them is older than the other, or a window is still open.",),
            "gaps",
        )


def _say_further(noun: str, others: Sequence[Loss]) -> str:
    lost = plural(sum(one.messages for one in others), noun)
    return f"{lost} lost on {plural(len(others), 'further topic')}."


def _counted(figures: Figures) -> Iterator[Finding]:
    """Hold what the recording lacks against what the bus counted while it was made."""
    counted = figures.counters.get("messages_lost", 0)
    known = sum(one.messages for one in figures.losses if one.lost_by == BY_BUS)
    if "gaps" in figures.missing or "bus_counters" in figures.missing or counted == known == 0:
        return
    if counted == known:
        text = f"The bus counted the same: {plural(counted, 'message')} lost."
        yield Finding(Level.GOOD, text, (), "counters")
    else:
        yield Finding(
            Level.NOTE,
            f"The bus counted {plural(counted, 'message')} lost, the recording lacks {known:,}.",
            ("the bus also counts what was not recorded, and the recorder looks once a second",),
            "counters",
        )


def _say_loss(loss: Loss) -> Finding:
    told = loss.reported_as
    where = f"{plural(loss.messages, 'message')} lost on {loss.subject} by publisher {loss.source}"
    who_told = f"reported by the bus as {told}" if told else "reported by nobody"
    by = "" if loss.lost_by == BY_BUS else f" (lost by: {loss.lost_by})"
    hint = () if told else ("best effort loses without a report; reliable topics must not",)
    return Finding(
        Level.BAD,
        f"{where} {period(loss.first_us, loss.last_us)}, {who_told}{by}.",
        (f"{plural(loss.gaps, 'hole')} in the sequence", *hint),
        "loss",
    )


def _say_samples(loss: Loss) -> Finding:
    """Say it of a time-triggered topic, which nobody repairs: the slots that it cost count."""
    what = f"{plural(loss.messages, 'sample')} lost on {loss.subject} by producer {loss.source}"
    return Finding(
        Level.WARNING,
        f"{what} {period(loss.first_us, loss.last_us)}.",
        (f"{plural(loss.gaps, 'hole')} in the sequence", "samples are not repaired"),
        "loss",
    )


def _recorder(figures: Figures) -> Iterator[Finding]:
    mine = [one for one in figures.losses if one.lost_by == BY_RECORDER]
    lost = [one for one in mine if not one.is_pause]
    pauses = [one for one in mine if one.is_pause]
    if lost:
        messages = plural(sum(one.messages for one in lost), "message")
        yield Finding(
            Level.BAD,
            f"The recorder itself lost {messages} {_when(lost)}; the bus had them.",
            tuple(
                f"{one.messages:,} of {one.subject} from {one.source} ({one.reported_as})"
                for one in lost[:4]
            ),
            "gaps",
        )
    if pauses:
        messages = plural(sum(one.messages for one in pauses), "message")
        yield Finding(
            Level.WARNING,
            f"The recorder did not run for a while {_when(pauses)}: {messages} not recorded.",
            (
                "it was ended or killed, and started again",
                *(f"{one.messages:,} of {one.subject} from {one.source}" for one in pauses[:4]),
            ),
            "gaps",
        )
    if figures.messages and not mine and not _is_any_unexplained(figures):
        yield Finding(Level.GOOD, "The recorder lost nothing.", (), "gaps")


def _when(losses: Sequence[Loss]) -> str:
    """Say between which times holes are."""
    times = [one.first_us for one in losses if one.first_us is not None]
    ends = [one.last_us for one in losses if one.last_us is not None]
    return period(min(times, default=None), max(ends, default=None))


def _is_any_unexplained(figures: Figures) -> bool:
    """Tell whether a hole may be anybody's fault, or whether holes are not known at all."""
    is_unknown = any(one.lost_by != BY_BUS for one in figures.losses)
    return is_unknown or "gaps" in figures.missing


def _nothing_lost(figures: Figures) -> Iterator[Finding]:
    if figures.messages and not figures.losses and "gaps" not in figures.missing:
        yield Finding(
            Level.GOOD,
            "No message is missing.",
            (f"{plural(figures.messages, 'message')}, no hole in any sequence",),
            "loss",
        )


def _ends(figures: Figures) -> Iterator[Finding]:
    ends = [
        (lane, stay) for lane in figures.lanes for stay in lane.stays if stay.ended in _END_WORDS
    ]
    published = {one.source_id: one for one in figures.topics}
    yield from _worst(
        ends,
        lambda end: _say_end(*end, is_publisher=end[0].node_id in published),
        lambda others: f"{plural(len(others), 'further node')} ended that way.",
    )


_END_WORDS: Final = {
    "died": "was killed or crashed",
    "timeout": "fell silent and was given up",
    "restarted": "started again without saying goodbye",
}


def _say_end(lane: Lane, stay: Stay, *, is_publisher: bool) -> Finding:
    what = "Publisher" if is_publisher else "Node"
    assert stay.last_us is not None and stay.ended is not None
    since = "" if stay.first_us is None else f"here for {span(stay.last_us - stay.first_us)}"
    since = "here since before the recording" if stay.was_there else since
    return Finding(
        Level.WARNING if stay.ended == "restarted" else Level.BAD,
        f"{what} {lane.node} {_END_WORDS[stay.ended]} at {moment(stay.last_us)}.",
        tuple(filter(None, (f"the bus says: {stay.ended}", since))),
        "nodes",
    )


def _slow(figures: Figures) -> Iterator[Finding]:
    yield from _worst(
        figures.slow,
        _say_slow,
        lambda others: f"{plural(len(others), 'further consumer')} could not keep up.",
    )


def _say_slow(slow: Slow) -> Finding:
    dropped = f", and {plural(slow.dropped, 'message')} {were(slow.dropped)} dropped"
    whose = f" ({slow.subscription})" if slow.subscription else ""
    return Finding(
        Level.BAD if slow.dropped else Level.WARNING,
        f"Consumer {slow.node}{whose} was too slow {period(slow.first_us, slow.last_us)}"
        f"{dropped if slow.dropped else ''}.",
        tuple(filter(None, (plural(slow.reports, "report") + " of the bus", slow.policy))),
        "nodes",
    )


def _elsewhere(figures: Figures) -> Iterator[Finding]:
    yield from _worst(
        figures.elsewhere,
        lambda one: Finding(
            Level.BAD,
            f"Node {one.node} lost {plural(one.messages, 'message')} "
            f"{period(one.first_us, one.last_us)}.",
            ("as it told itself; the recorder may have had them",),
            "nodes",
        ),
        lambda others: f"{plural(len(others), 'further node')} lost messages.",
    )


def _quarantine(figures: Figures) -> Iterator[Finding]:
    for one in figures.quarantined:
        is_harmless = one.reason == "duplicate"
        on = ", ".join(one.subjects)
        yield Finding(
            Level.NOTE if is_harmless else Level.WARNING,
            f"{plural(one.rows, 'row')} put aside ({one.reason})"
            f"{f', on {on}' if on else ''}, {period(one.first_us, one.last_us)}.",
            (one.example,) if one.example else (),
            "quarantine",
        )


def _duplicates(figures: Figures) -> Iterator[Finding]:
    copies = figures.counters.get("dropped_duplicate", 0)
    if copies:
        yield Finding(
            Level.NOTE,
            f"{plural(copies, 'frame')} came twice; the bus dropped the copies.",
            ("counted by the recorder's node",),
            "counters",
        )
    if not figures.duplicates:
        return
    worst = sorted(
        (one for one in figures.topics if one.duplicates), key=lambda one: -one.duplicates
    )
    yield Finding(
        Level.NOTE,
        f"{plural(figures.duplicates, 'message')} came twice; each was counted once.",
        tuple(f"{one.duplicates:,} on {one.subject} from {one.source}" for one in worst[:4]),
        "topics",
    )


def _repairs(figures: Figures) -> Iterator[Finding]:
    frames = sum(figures.repairs.values())
    if not frames:
        return
    worst = [(source, count) for source, count in figures.repairs.items() if count]
    yield Finding(
        Level.NOTE,
        f"{plural(frames, 'frame')} got lost on the way and came by a repair.",
        tuple(f"{count:,} from {source}" for source, count in worst[:4]),
        "loss",
    )


def _periods(figures: Figures) -> Iterator[Finding]:
    broken = [one for one in figures.periods if one.missed or one.late]
    for one in broken[:REPORT_FINDINGS_MAX]:
        yield Finding(
            Level.BAD if one.missed else Level.WARNING,
            f"{one.source} kept the period of {latency(one.period_ns / 1000)} of {one.subject} in "
            f"{share(one.met, one.slots)} of {plural(one.slots, 'slot')}: "
            f"{one.missed:,} missed, {one.late:,} late.",
            (),
            "periods",
        )
    if figures.periods and not broken:
        slots = sum(one.slots for one in figures.periods)
        yield Finding(Level.GOOD, f"Every period was kept: {plural(slots, 'slot')}.", (), "periods")


def _consumers(figures: Figures) -> Iterator[Finding]:
    yield from _worst(
        [one for one in figures.consumers if one.missed],
        lambda one: Finding(
            Level.BAD,
            f"Consumer {one.source} of {one.subject} each {latency(one.period_ns / 1000)} got "
            f"nothing in {one.missed:,} of {plural(one.slots, 'slot')}.",
            (f"as it counted itself; {plural(one.late, 'sample')} came too late",),
            "periods",
        ),
        lambda others: f"{plural(len(others), 'further consumer')} had empty slots.",
    )


def _latencies(figures: Figures) -> Iterator[Finding]:
    known = [one for one in figures.topics if one.latency.p99_us is not None]
    if not known:
        return
    # What the bus tells of itself is nobody's worry while there is anything else.
    asked = [one for one in known if not one.subject.startswith(OWN_SUBJECTS)] or known
    worst: Topic = max(asked, key=lambda one: one.latency.p99_us or 0.0)
    whole = figures.latency
    yield Finding(
        Level.NOTE,
        f"Half of all messages were on their way for {latency(whole.p50_us)} or less, 99 % for "
        f"{latency(whole.p99_us)} or less; the slowest took {latency(whole.max_us)}.",
        (
            f"slowest: {worst.subject} from {worst.source}, p99 {latency(worst.latency.p99_us)}",
            "between hosts this contains the difference of their clocks",
        ),
        "latency",
    )


def _handovers(figures: Figures) -> Iterator[Finding]:
    services = {one.service for one in figures.managers}
    for service in sorted(services):
        terms = [one for one in figures.managers if one.service == service]
        if len(terms) > 1:
            yield Finding(
                Level.NOTE,
                f"Service {service} changed hands {times(len(terms) - 1)}.",
                (" → ".join(one.manager for one in terms[:6]),),
                "services",
            )


def _unfinished(figures: Figures) -> Iterator[Finding]:
    if figures.missing:
        yield Finding(
            Level.WARNING,
            f"Tables that are not there: {', '.join(figures.missing)}.",
            ("the report says nothing of what they would tell",),
        )
    if figures.open_windows:
        yield Finding(
            Level.NOTE,
            f"{plural(figures.open_windows, 'window')} at the end may still grow.",
            ("messages may come late; a run over later ones closes them",),
            "topics",
        )
    if figures.late:
        yield Finding(
            Level.WARNING,
            f"{plural(figures.late, 'late message')} {be(figures.late)} not counted yet.",
            ("the next incremental run of the pipeline counts them in",),
        )


_SEARCHES: Final[tuple[Callable[[Figures], Iterator[Finding]], ...]] = (
    _losses,
    _counted,
    _recorder,
    _nothing_lost,
    _ends,
    _slow,
    _elsewhere,
    _quarantine,
    _duplicates,
    _repairs,
    _periods,
    _consumers,
    _latencies,
    _handovers,
    _unfinished,
)
