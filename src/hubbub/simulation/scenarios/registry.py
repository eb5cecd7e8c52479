"""Where scenarios are found by name."""

from hubbub.simulation.stage import Play

SCENARIOS: dict[str, Play] = {}


def scenario(play: Play) -> Play:
    """Enter a scenario under its own name."""
    assert play.__doc__, f"{play.__name__} does not say what it shows"
    SCENARIOS[play.__name__] = play
    return play
