"""Time-triggered topics whose numbers, subjects and scopes are not the same everywhere."""

from hubbub.limits import MS, SECOND
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.stage import Stage
from hubbub.simulation.timed import Company, Maker, Taken, User
from hubbub.wire.timed import NODE_BYTES

# Registered and derived; the third and fourth have one number, as derived ones can.
_TYPES = {
    "/n/registered": (5, (1 << 31) + 5),
    "/n/derived": ((1 << 31) + 6,) * 2,
    "/n/twin": ((1 << 31) + 7,) * 2,
    "/n/other/twin": ((1 << 31) + 7,) * 2,
}


@scenario
def timed_names(stage: Stage) -> None:
    """Have numbers, subjects, scopes and devices that differ: who means the same meets only."""
    random, world = stage.random, stage.world
    company = Company(stage)
    cars = stage.nodes(random.randint(2, 4))
    world.run_for(60 * MS)
    for _ in range(random.randint(2, 5)):
        subject = random.choice(list(_TYPES))
        number, scope = random.choice(_TYPES[subject]), random.choice([0, 0, 7, 8])
        company.make(random.choice(cars), number, subject, scope=scope)
    for _ in range(random.randint(3, 10)):
        subject = random.choice(list(_TYPES))
        number, scope = random.choice(_TYPES[subject]), random.choice([0, 0, 7, 8])
        origin = random.choice(company.makers).producer.origin
        within = random.choice([b"", b"", origin[:NODE_BYTES], origin])
        node = random.choice(cars)
        company.use(node, 50_000, number, subject=subject, scope=scope, within=within)
        world.run_for(random.randrange(100 * MS))
    world.run_for(SECOND)
    before = [len(user.taken) for user in company.users]
    world.run_for(SECOND)
    for user, count in zip(company.users, before, strict=True):
        for maker in company.makers:
            _check_meeting(company, user, maker, user.taken[count:])
    for maker in company.makers:
        _check_work(company, maker)
    world.counts["taken"] += sum(len(user.taken) for user in company.users)


def _check_work(company: Company, maker: Maker) -> None:
    """Check that a producer that nobody means is not at work for anybody (P7)."""
    is_named = any(
        maker.producer.origin.startswith(user.consumer.within)
        and maker.producer.subject == user.consumer.subject
        for user in company.users
    )
    text = f"{maker.node} makes samples for others than those who named it (P7)"
    company.stage.world.check(is_named or not maker.sent, text)


def _check_meeting(company: Company, user: User, maker: Maker, taken: list[Taken]) -> None:
    """Check that a consumer has all of a producer that it means, and else nothing (P11)."""
    consumer, producer = user.consumer, maker.producer
    is_inside = not consumer.scope or producer.options.scope in (0, consumer.scope)
    is_device = producer.origin.startswith(consumer.within)
    is_meant = is_inside and is_device and consumer.subject == producer.subject
    found = sum(one.origin == producer.origin for one in taken)
    text = f"{user.node} wants {consumer.subject}, and has {found} samples of {producer.subject}"
    company.stage.world.check(found >= 19 if is_meant else found == 0, text)
