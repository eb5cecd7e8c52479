"""The scenarios, a room a subject; each is one small function of a stage."""

from hubbub.simulation.scenarios import loss, membership
from hubbub.simulation.scenarios.registry import SCENARIOS

__all__ = ["SCENARIOS", "loss", "membership"]
