"""What goes by which link of this node, a second: the difference of two snapshots."""

from collections.abc import Iterator

from hubbub.cli.screen import UNKNOWN
from hubbub.cli.terminal import size
from hubbub.cli.top.gather import Look
from hubbub.cli.top.sheet import FAINT, Cell, Row, count, text
from hubbub.cli.views import write_rate
from hubbub.links.pipes import PipeStatistics
from hubbub.links.statistics import LinkStatistics
from hubbub.statistics import ChannelStatistics


def link_rows(look: Look) -> Iterator[Row]:
    """Describe multicast, the pipes of this host, TCP and shared memory of every channel."""
    before = {channel.name: channel for channel in look.before.channels}
    for channel in look.own.channels:
        then = before.get(channel.name, channel)
        yield _multicast_row(channel.link, then.link, look.seconds)
        pairs = (("local", channel.local, then.local), ("tcp", channel.tcp, then.tcp))
        for name, now, earlier in pairs:
            if now is not None:
                yield _pipes_row(name, channel, now, earlier or now, look.seconds)
        yield from _shared_row(channel)


def _multicast_row(now: LinkStatistics, then: LinkStatistics, seconds: float) -> Row:
    place = f"{now.channel} ({', '.join(now.interfaces)})"
    cells = (
        _rate(now.frames_out - then.frames_out, seconds),
        _rate(now.frames_in - then.frames_in, seconds),
        _bytes(now.bytes_out - then.bytes_out, seconds),
        _bytes(now.bytes_in - then.bytes_in, seconds),
        count(now.kernel_drops + now.truncated, is_bad=True),
    )
    name = "datagram" if now.name == "datagram" else "multicast"
    return Row(f"{name} {now.channel}", (text(name), text(place), *cells))


def _pipes_row(
    name: str, channel: ChannelStatistics, now: PipeStatistics, then: PipeStatistics, seconds: float
) -> Row:
    place = f"{now.pipes} pipes of {channel.name}"
    cells = (
        _rate(now.packets_out - then.packets_out, seconds),
        _rate(now.packets_in - then.packets_in, seconds),
        _bytes(now.bytes_out - then.bytes_out, seconds),
        _bytes(now.bytes_in - then.bytes_in, seconds),
        count(now.dropped, is_bad=True),
    )
    return Row(f"{name} {channel.name}", (text(name), text(place), *cells))


def _shared_row(channel: ChannelStatistics) -> Iterator[Row]:
    """Say how much of our own memory readers hold; what flows is counted by the pipes."""
    shared = channel.shared
    if shared is None or not shared.arenas:
        return
    place = f"{size(shared.bytes_in_use)} of {size(shared.bytes_total)} in use"
    nothing = Cell(UNKNOWN, None, FAINT)
    cells = (nothing, nothing, nothing, nothing, count(shared.failed, is_bad=True))
    yield Row(f"shared {channel.name}", (text("shared memory"), text(place), *cells))


def _rate(number: int, seconds: float) -> Cell:
    return Cell(write_rate(number / seconds), number) if number else Cell(UNKNOWN, 0, FAINT)


def _bytes(number: int, seconds: float) -> Cell:
    return Cell(size(number / seconds), number) if number else Cell(UNKNOWN, 0, FAINT)
