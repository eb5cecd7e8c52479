"""The settings of a channel: every knob of the protocol, its default, and what values can work.

The names and units are ours; docs/distributor.md lists which parameter of the Java Multicast
Distributor each of them was.
"""

from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

from hubbub import limits
from hubbub.errors import ConfigurationError
from hubbub.limits import MS, SECOND

_WHOLE = ("_bytes", "_bits", "_rounds", "_requests", "_limit")
CLOCKS = ("system", "local", "bus")
NAGGING_POLICIES = ("suspend", "report", "resync")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one channel, validated when made."""

    heartbeat_ms: float = limits.HEARTBEAT / MS
    """How often an idle node says that it is alive."""
    peer_timeout_ms: float = limits.PEER_TIMEOUT / MS
    """A peer not heard for so long has left."""
    holdback_ms: float = limits.HOLDBACK / MS
    """How long a busy sender waits for a frame to fill; 0 sends each message at once."""
    holdback_rate: float = limits.BUSY_MESSAGES * SECOND / limits.BUSY_WINDOW
    """Above so many messages a second a sender is busy."""
    rate_limit_bits: int = 0
    """Upper limit of what a channel sends, repairs included, in bits a second; 0: none."""
    cache_bytes: int = limits.CACHE_BYTES_MAX
    """How much of what was sent is kept for repairs."""
    repair_window_ms: float = limits.CACHE_AGE / MS
    """For how long; also how long a peer lost by timeout is still owed what it missed."""
    repair_rounds: int = limits.REPAIR_ROUNDS_MAX
    """After so many unanswered requests a frame is given up."""
    repair_time_ms: float = limits.REPAIR_TIME_MAX / MS
    """After so long, too."""
    reorder_tolerance_ms: float = limits.REORDER_TOLERANCE / MS
    """A frame that is only late is not asked for within this time."""
    window_bytes: int = 0
    """Receive window; 0: half of what the socket buffer holds, at most 4 MiB."""
    slow_ms: float = limits.SLOW / MS
    """A receiver that does not advance for so long no longer holds back the group."""
    send_timeout: float = limits.SEND_TIMEOUT_S
    """A reliable publish waits at most so many seconds for its receivers, then raises."""
    backlog_bytes: int = limits.BACKLOG_BYTES_MAX
    """How much may wait to be sent before a publish waits."""
    linger_ms: float = limits.LINGER / MS
    """How long close() serves repairs at most."""
    reference_bytes: int = limits.REFERENCE_BYTES_MIN
    """Payloads from this size on go by reference to subscribers on this host; 0: none do."""
    message_bytes: int = limits.MESSAGE_BYTES_MAX
    """The largest message that is sent or put together."""
    reassembly_bytes: int = limits.REASSEMBLY_BYTES_MAX
    """Memory for large messages that are still incomplete, over all peers."""
    nagging_window_ms: float = 0
    """The nagging monitor looks once a window; 0: off."""
    nagging_check_ms: float = 60_000
    """It speaks up when every window for so long had requests..."""
    nagging_requests: int = 200
    """...and so many in all."""
    nagging_policy: str = "suspend"
    """Then: `suspend` receiving, only `report`, or `resync` (give up what is missing)."""
    clock: str = "system"
    """What ticks follow: the `system`'s clock, a `local` one from there on, or the `bus`."""
    hop_limit: int = limits.HOP_LIMIT
    """How many gateways a frame may cross."""
    statistics_interval: float = 0
    """Log the statistics every so many seconds; 0: never."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, saying which value, which bound."""
        for name in [
            "heartbeat_ms",
            "peer_timeout_ms",
            "cache_bytes",
            "repair_window_ms",
            "repair_rounds",
            "repair_time_ms",
            "slow_ms",
            "send_timeout",
            "backlog_bytes",
            "message_bytes",
            "reassembly_bytes",
            "hop_limit",
        ]:
            self._at_least(name, 0, is_exclusive=True)
        for name in [
            "holdback_ms",
            "holdback_rate",
            "rate_limit_bits",
            "reorder_tolerance_ms",
            "window_bytes",
            "reference_bytes",
            "linger_ms",
            "nagging_window_ms",
            "nagging_check_ms",
            "nagging_requests",
            "statistics_interval",
        ]:
            self._at_least(name, 0)
        if self.peer_timeout_ms <= self.heartbeat_ms:
            raise ConfigurationError(
                f"peer_timeout_ms={self.peer_timeout_ms} must be more than"
                f" heartbeat_ms={self.heartbeat_ms}, else every peer times out"
            )
        if self.window_bytes and self.window_bytes < limits.WINDOW_BYTES_MIN:
            raise ConfigurationError(
                f"window_bytes={self.window_bytes} is below {limits.WINDOW_BYTES_MIN};"
                " 0 takes it from the socket buffer"
            )
        if self.message_bytes > limits.MESSAGE_BYTES_MAX:
            raise ConfigurationError(
                f"message_bytes={self.message_bytes} is above {limits.MESSAGE_BYTES_MAX}"
            )
        if self.hop_limit > 255:
            raise ConfigurationError(f"hop_limit={self.hop_limit} is above 255")
        if self.clock not in CLOCKS:
            raise ConfigurationError(f"clock={self.clock!r} is none of {', '.join(CLOCKS)}")
        if self.nagging_policy not in NAGGING_POLICIES:
            raise ConfigurationError(
                f"nagging_policy={self.nagging_policy!r} is none of {', '.join(NAGGING_POLICIES)}"
            )

    def _at_least(self, name: str, bound: float, *, is_exclusive: bool = False) -> None:
        value = getattr(self, name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ConfigurationError(f"{name}={value!r} is not a number")
        if not isfinite(value):
            raise ConfigurationError(f"{name}={value} must be finite")
        if name.endswith(_WHOLE) and not isinstance(value, int):
            raise ConfigurationError(f"{name}={value} is not a whole number")
        if value < bound or (is_exclusive and value == bound):
            raise ConfigurationError(
                f"{name}={value} must be {'more than' if is_exclusive else 'at least'} {bound}"
            )


def make_settings(options: dict[str, Any]) -> Settings:
    """Make settings from keyword arguments; an unknown one raises with the names there are."""
    known = {field.name for field in fields(Settings)}
    unknown = sorted(set(options) - known)
    if unknown:
        raise ConfigurationError(
            f"unknown option {', '.join(unknown)}; there are {', '.join(sorted(known))}"
        )
    return Settings(**options)
