"""Loss of every kind: nothing missing, nothing twice, order kept, and no gap reported either."""

from hubbub.limits import MS
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.stage import Stage


def _chatter(stage: Stage, *, messages: int = 600) -> None:
    """One to three publishers, one to five subscribers, a few hundred messages in all."""
    random = stage.random
    publishers, subscribers = stage.group(random.randint(1, 3), random.randint(1, 5))
    subjects = random.randint(1, 3)
    topics = stage.topics(publishers, subjects)
    stage.meet(topics, len(subscribers), 1000 * MS)
    count = messages // len(topics)
    pause_ns = random.choice([200_000, 1 * MS, 3 * MS])
    burst = random.choice([1, 1, 5, 20])
    size_bytes = random.choice([(1, 100), (1, 1200), (1, 4000)])
    for place, topic in enumerate(topics):
        node = publishers[place // subjects]
        stage.feed(
            node, topic, count=count, pause_ns=(0, burst * pause_ns), size_bytes=size_bytes,
            burst=burst,
        )  # fmt: skip
    stage.play()


@scenario
def random_loss(stage: Stage) -> None:
    """Lose 0-20 % of all datagrams, duplicate and reorder others."""
    random = stage.random
    stage.faults(
        loss=random.uniform(0, 0.2),
        duplicate=random.choice([0, random.uniform(0, 0.2)]),
        reorder=random.choice([0, random.uniform(0, 0.2)]),
        reorder_ns=random.choice([1, 5, 50]) * MS,
    )
    _chatter(stage)
    stage.finish()
    stage.check_first()
