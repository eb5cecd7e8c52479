"""The scenarios, a room a subject; each is one small function of a stage."""

from hubbub.simulation.scenarios import loss  # noqa: F401
from hubbub.simulation.scenarios.registry import SCENARIOS

__all__ = ["SCENARIOS"]
