"""Where scenarios are found by name, and the conversation that many of them hold."""

from hubbub.limits import MS
from hubbub.simulation.node import Host, SimulatedNode
from hubbub.simulation.stage import Play, Stage

SCENARIOS: dict[str, Play] = {}


def scenario(play: Play) -> Play:
    """Enter a scenario under its own name."""
    assert play.__doc__, f"{play.__name__} does not say what it shows"
    SCENARIOS[play.__name__] = play
    return play


def chatter(
    stage: Stage, *, messages: int = 500, host: Host | None = None,
    pause_ns: int | None = None, subscribers: int | None = None,
) -> tuple[list[SimulatedNode], list[SimulatedNode]]:  # fmt: skip
    """Let one to three publishers send some hundred messages to one to five subscribers."""
    publishing, subscribing = gather(stage, host=host, subscribers=subscribers)
    start(stage, publishing, messages=messages, pause_ns=pause_ns)
    return publishing, subscribing


def gather(
    stage: Stage, *, host: Host | None = None, subscribers: int | None = None
) -> tuple[list[SimulatedNode], list[SimulatedNode]]:
    """Open publishers and subscribers, and wait until they know each other."""
    random = stage.random
    publishing, subscribing = stage.group(
        random.randint(1, 3), subscribers or random.randint(1, 5), host=host
    )
    topics = stage.topics(publishing, random.randint(1, 3))
    stage.meet(topics, len(subscribing), 1000 * MS)
    return publishing, subscribing


def start(
    stage: Stage, publishing: list[SimulatedNode], *, messages: int, pause_ns: int | None = None
) -> None:
    """Begin to publish on all topics, at a pace and with sizes that the seed draws."""
    random = stage.random
    pause_ns = pause_ns or random.choice([200_000, 1 * MS, 3 * MS])
    burst = random.choice([1, 1, 5, 20])
    size_bytes = random.choice([(1, 100), (1, 1200), (1, 4000)])
    topics = [(node, topic) for node in publishing for topic in node.topics]
    for node, topic in topics:
        stage.feed(
            node, topic, count=messages // len(topics), pause_ns=(0, burst * pause_ns),
            size_bytes=size_bytes, burst=burst,
        )  # fmt: skip
