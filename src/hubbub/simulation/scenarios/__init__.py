"""The scenarios, a room a subject; each is one small function of a stage."""

from hubbub.simulation.scenarios import (
    acknowledged,
    datagrams,
    discovery,
    gateways,
    history,
    hosts,
    isolation,
    links,
    loss,
    membership,
    register,
    services,
    services_batches,
    services_defects,
    services_group,
    services_more,
    services_still,
    services_subjects,
    sides,
    swarm,
    timed,
    timed_again,
    timed_names,
    traffic,
    wishes,
)
from hubbub.simulation.scenarios.registry import SCENARIOS

__all__ = [
    "SCENARIOS", "acknowledged", "datagrams", "discovery", "gateways", "history", "hosts",
    "isolation", "links", "loss", "membership", "register", "services", "services_batches",
    "services_defects", "services_group", "services_more", "services_still", "services_subjects",
    "sides", "swarm", "timed", "timed_again", "timed_names", "traffic", "wishes",
]  # fmt: skip
