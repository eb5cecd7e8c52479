"""What a publisher may be asked for beside sending: which values can work."""

from hubbub.errors import ConfigurationError
from hubbub.given import is_number, is_whole
from hubbub.limits import ACKNOWLEDGE_MS_MAX, HISTORY_MESSAGES_MAX, TIME_MAX


def check_slow(on_slow: str, *, is_reliable: bool) -> None:
    """Refuse a way to treat slow receivers that there is not."""
    if on_slow not in ("drop", "block"):
        raise ConfigurationError(f"on_slow={on_slow!r}: choose one of drop, block")
    if on_slow == "block" and not is_reliable:
        raise ConfigurationError("on_slow='block' needs reliable=True: best effort never waits")


def check_acknowledgement(acknowledge_ms: float | None, *, is_reliable: bool) -> None:
    """Refuse a time that cannot be waited for."""
    if acknowledge_ms is None:
        return
    if not is_number(acknowledge_ms):
        raise ConfigurationError(f"acknowledge_ms={acknowledge_ms!r} is not a number")
    if not 0 < acknowledge_ms <= ACKNOWLEDGE_MS_MAX:
        raise ConfigurationError(
            f"acknowledge_ms={acknowledge_ms} must be more than 0 and at most {ACKNOWLEDGE_MS_MAX}"
        )
    if not is_reliable:
        raise ConfigurationError(
            f"acknowledge_ms={acknowledge_ms} needs reliable=True: best effort is not acknowledged"
        )


def check_history(history: int, *, is_reliable: bool) -> None:
    """Refuse a history that cannot be kept."""
    if not is_whole(history):
        raise ConfigurationError(f"history={history!r} is not a whole number of messages")
    if not 0 <= history <= HISTORY_MESSAGES_MAX:
        raise ConfigurationError(f"history={history} is not between 0 and {HISTORY_MESSAGES_MAX}")
    if history and not is_reliable:
        raise ConfigurationError(f"history={history} needs reliable=True: it is served complete")


def check_replay(replayed_ns: int | None) -> None:
    """Refuse a time at which no recording can have begun to be played."""
    if replayed_ns is None:
        return
    if not is_whole(replayed_ns) or not 0 < replayed_ns <= TIME_MAX:
        raise ConfigurationError(
            f"replayed_ns={replayed_ns!r} is no time: give nanoseconds since 1970, an int"
        )


def check_by_services(
    history: int, acknowledge_ms: float | None, on_slow: str, replayed_ns: int | None
) -> None:
    """Refuse what subjects do not have where they travel by services."""
    asked = {
        "history": history, "acknowledge_ms": acknowledge_ms is not None,
        "on_slow": on_slow != "drop", "replayed_ns": replayed_ns is not None,
    }  # fmt: skip
    found = [name for name, is_asked in asked.items() if is_asked]
    if found:
        raise ConfigurationError(
            f"{', '.join(found)}: subjects have none by links=['services']; leave it out"
        )
