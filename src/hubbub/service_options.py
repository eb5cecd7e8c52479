"""How a node takes part in services: which values can work."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from time import monotonic
from typing import Any, Final

from hubbub.errors import ConfigurationError
from hubbub.given import is_whole
from hubbub.limits import SERVICE_LEVELS_MAX
from hubbub.protocol.rendezvous.placement import Placement, find_placement
from hubbub.protocol.rendezvous.profile import find_profile
from hubbub.protocol.rendezvous.seat import Policy
from hubbub.runtime.logs import logger_of

VERSIONS: Final = ("v1", "v2")
# What can be said without code, and what it is.
_KINDS: Final[dict[str, type]] = {
    "membership": str, "placement": str, "version": str, "weight": int, "service_levels": int,
    "is_open": bool,
}  # fmt: skip
_log = logger_of("subscription")
_REPORT_S: Final = 1.0  # A policy that raises at each message is told of so often.


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How a node takes part in services.

    `membership` is "fast" or "seed" (a list each 10 s, dead after a minute), `placement` "xor",
    "hrw" or "weighted" by `weight`, or an object whose `measure(key, node_key, weight)` is least
    for the node that manages: the first two are the same on all nodes of a bus.
    `policy(action, key, name, node, credentials)` says who may subscribe and publish in the
    services that this node manages.
    """

    membership: str = "fast"
    placement: str | Placement = "xor"
    weight: int = 1
    policy: Policy | None = None
    is_open: bool = True
    is_guest: bool = False
    """Look on: take part in nothing, and manage nothing."""
    service_levels: int = 1
    """So many first levels of a subject name its service, with `links=["services"]`."""
    version: str = "v2"
    """With "v1" send bare messages of the first version, where these can say it all."""

    def __post_init__(self) -> None:
        find_profile(self.membership)
        find_placement(self.placement)
        weight, policy = self.weight, self.policy
        if not is_whole(weight) or not 1 <= weight <= 1000:
            raise ConfigurationError(f"weight={weight!r} must be a number from 1 to 1000")
        levels = self.service_levels
        if not is_whole(levels) or not 1 <= levels <= SERVICE_LEVELS_MAX:
            raise ConfigurationError(
                f"service_levels={levels!r} must be a number from 1 to {SERVICE_LEVELS_MAX}"
            )
        if self.version not in VERSIONS:
            raise ConfigurationError(f"version={self.version!r}: choose {' or '.join(VERSIONS)}")
        if policy is not None and (not callable(policy) or iscoroutinefunction(policy)):
            raise ConfigurationError(
                f"policy={policy!r}: give a plain function of action, key, name, node, credentials"
            )


def kind_of_service_option(name: str, option: str) -> type:
    """Return what an option of services is that can be configured; `name` is who says it."""
    if option not in _KINDS:
        raise ConfigurationError(f"{name}: {option} is none of {', '.join(_KINDS)}")
    return _KINDS[option]


def make_service_options(name: str, parts: Mapping[str, Any]) -> ServiceOptions:
    """Make options of a table, which says how a node takes part, and not yet that it does."""
    for option, value in parts.items():
        kind = kind_of_service_option(name, option)
        if not isinstance(value, kind):
            raise ConfigurationError(f"{name}: {option}={value!r} is not of type {kind.__name__}")
    return ServiceOptions(**{"is_open": False, **parts})


def combine(configured: Any, wanted: Any) -> Any:
    """Return what is wanted of services, where how they are used is configured for all nodes."""
    if not isinstance(configured, ServiceOptions):
        return wanted
    if isinstance(wanted, bool):
        return replace(configured, is_open=wanted)
    return replace(configured, is_open=True, version=wanted) if wanted in VERSIONS else wanted


def guard(policy: Policy) -> Policy:
    """Let a policy that raises refuse, and say so: what it is asked about, peers have sent."""
    told_s = -_REPORT_S

    def is_allowed(action: str, key: bytes, name: str, node: bytes, credentials: bytes) -> bool:
        nonlocal told_s
        try:
            return bool(policy(action, key, name, node, credentials))
        except KeyboardInterrupt:  # Ctrl-C is meant for the program, wherever it hits.
            raise
        except BaseException:
            if monotonic() - told_s >= _REPORT_S:
                told_s = monotonic()
                _log.exception("policy failed, so %s is refused: %s", action, name or key.hex())
            return False

    return is_allowed
