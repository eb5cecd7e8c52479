"""Services with subjects: managers send to each subscriber what it wants, and nothing else."""

from hubbub.limits import MS, SECOND
from hubbub.protocol.rendezvous.client import FIFO
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage
from hubbub.subjects import matches

_NAME = "plant"
_SUBJECTS = [f"/plant/line{line}/{what}" for line in range(3) for what in ("temp", "speed")]
_PATTERNS = [
    "/plant/*/temp",
    "/plant/line1/...",
    "/plant/...",
    "/plant/line2/speed",
    "/elsewhere/*",
]


@scenario
def services_subjects(stage: Stage) -> None:
    """Want some subjects while managers join and leave: these come, in order, and no others."""
    random, world = stage.random, stage.world
    town = Town(stage)
    wanted: dict[ServiceNode, list[str]] = {}
    for node in town.open_many(random.randint(4, 9)):
        wanted[node] = random.sample(_PATTERNS, random.randint(1, 2))
        node.subscribe(_NAME, order=FIFO, patterns=wanted[node])
    town.settle([_NAME])
    stage.faults(loss=random.choice([0, 0.03]), reorder=random.choice([0, 0.1]))
    sent: dict[str, list[bytes]] = {subject: [] for subject in _SUBJECTS}
    for node in random.sample([*wanted], 2):
        _publish(town, node, sent, 90)
    for _ in range(random.randint(1, 4)):
        world.run_for(random.randrange(800 * MS))
        town.open()
    leaver = town.closest(_NAME)
    if leaver not in wanted:
        leaver.close()
    world.run_for(4 * SECOND)
    stage.heal()
    world.run_for(8 * SECOND)
    for node, patterns in wanted.items():
        _check(town, node, patterns, sent)
    town.settle([_NAME])
    town.note_counts()


def _publish(town: Town, node: ServiceNode, sent: dict[str, list[bytes]], left: int) -> None:
    """Publish on some subject, now and then many at a time."""
    random, world = town.stage.random, town.world
    for _ in range(random.choice([1, 1, 20])):
        subject = random.choice(_SUBJECTS)
        payload = b"%s from %d: %d" % (subject.encode(), node.index, len(sent[subject]))
        sent[subject].append(payload)
        town.published[payload] = (world.now, _NAME)
        world.check(node.publish(_NAME, payload, subject=subject) is not None, "no room (H13)")
    if left:
        world.after(random.randrange(80 * MS), _publish, town, node, sent, left - 1)


def _check(
    town: Town, node: ServiceNode, patterns: list[str], sent: dict[str, list[bytes]]
) -> None:
    """Check what one node was handed: all that it wants, and in the order of each publisher."""
    due = {
        payload
        for subject, payloads in sent.items()
        for payload in payloads
        if any(matches(pattern, subject) for pattern in patterns)
    }
    had = [one.delivered for one in node.heard[_NAME]]
    unwanted = sorted({one.payload for one in had} - due)
    town.world.check(not unwanted, f"{node} wants {patterns}, and had {unwanted[:3]}")
    town.check_complete(due, [node])
    last: dict[tuple[bytes, str], int] = {}
    for one in had:
        is_next = one.sequence > last.get((one.origin, one.subject), 0)
        town.world.check(is_next, f"{node}: {one.subject} is not in order (H8)")
        last[one.origin, one.subject] = one.sequence


@scenario
def services_everywhere(stage: Stage) -> None:
    """Want what begins with a wildcard: it comes from every service, also from those of nobody."""
    random, world = stage.random, stage.world
    town = Town(stage)
    names = ["plant", "site", "yard"]
    subjects = [f"/{name}/{what}" for name in names for what in ("temp", "speed")]
    wanted: dict[ServiceNode, list[str]] = {}
    for node in town.open_many(random.randint(3, 8)):
        wanted[node] = random.choice([["/*/temp"], ["/..."], ["/*/speed", "/yard/temp"], []])
        if wanted[node]:
            node.want_everywhere(wanted[node])
        elif random.random() < 0.5:
            node.subscribe("plant", patterns=["/plant/temp"])
            wanted[node] = ["/plant/temp"]
    world.run_for(1 * SECOND)
    stage.faults(loss=random.choice([0, 0.03]))
    sent: dict[str, list[bytes]] = {subject: [] for subject in subjects}
    for count in range(60):
        subject, node = random.choice(subjects), random.choice([*wanted])
        payload = b"%s %d" % (subject.encode(), count)
        if not any(matches(one, subject) for one in wanted[node]):  # Its own it gets elsewhere.
            sent[subject].append(payload)
        name = subject.split("/")[1]
        world.check(node.publish(name, payload, subject=subject) is not None, "no room (H13)")
        world.run_for(random.randrange(150 * MS))
        if count % 20 == 10:
            town.open()
    stage.heal()
    world.run_for(8 * SECOND)
    for node, patterns in wanted.items():
        due = {
            payload
            for subject, payloads in sent.items()
            for payload in payloads
            if any(matches(pattern, subject) for pattern in patterns)
        }
        town.check_complete(due, [node])
        had = [one.delivered for some in node.heard.values() for one in some]
        unwanted = [
            one.payload for one in had if not any(matches(p, one.subject) for p in patterns)
        ]
        world.check(not unwanted, f"{node} wants {patterns}, and had {unwanted[:3]}")
    leaver = random.choice([*wanted])
    leaver.want_everywhere([])
    world.run_for(2 * SECOND)
    left = [
        node for node in town.alive() if node.machine.manager.everywhere.listing.find(leaver.id)
    ]
    world.check(not left, f"{left} remember what nobody wants any more (H4)")
    town.note_counts()
