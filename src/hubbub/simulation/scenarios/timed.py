"""Time-triggered topics: jitter, loss, churn, clocks, floods, replays and crowds of vehicles."""

from hubbub.events import ClockStepped, InterestRefused
from hubbub.limits import INTERESTS_MAX, LEASE_MS_MIN, MS, SECOND, US
from hubbub.protocol.timetrigger.plan import DUE, HARMONISED, STRICT
from hubbub.protocol.timetrigger.timekeeper import BUS_CLOCK
from hubbub.simulation.node import SimulatedNode
from hubbub.simulation.scenarios.registry import scenario
from hubbub.simulation.stage import Stage
from hubbub.simulation.timed import Company, Maker, User, draw_periods, half_a_tick
from hubbub.wire.header import HEADER_BYTES, INTEREST, KIND_OFFSET, RESPONSE
from hubbub.wire.timed import (
    NEAREST,
    ONE,
    Interest,
    Wanted,
    decode_response,
    decode_timed,
    encode_response,
    encode_timed,
)

_SCHEDULES = (STRICT, DUE, DUE, HARMONISED)

_IN_FLIGHT_NS = 60 * MS


def _gather(
    stage: Stage, *, makers: int, users: int, host: dict[str, object], copies: int = 1
) -> Company:
    """Open producers and consumers of one type, and let them meet."""
    company = Company(stage)
    schedule = stage.random.choice(_SCHEDULES)
    nodes = [stage.node(stage.host(**host)) for _ in range(makers + users)]
    stage.world.run_for(60 * MS)
    for node in nodes[:makers]:
        is_staggered = stage.random.random() < 0.2
        company.make(node, schedule=schedule, is_staggered=is_staggered, copies=copies)
    for node, period_us in zip(nodes[makers:], draw_periods(stage, users), strict=True):
        company.use(node, period_us)
        stage.world.run_for(stage.random.randrange(100 * MS))
    stage.world.run_for(100 * MS)
    return company


@scenario
def timed_jitter(stage: Stage) -> None:
    """Delay every sample by up to half a tick, some twice: each consumer has one a slot."""
    random, world = stage.random, stage.world
    company = _gather(stage, makers=random.randint(1, 3), users=random.randint(1, 4), host={})
    stage.faults(jitter_ns=half_a_tick(company), duplicate=random.choice([0, 0.2]))
    local = company.use(company.makers[0].node, draw_periods(stage, 1)[0])
    for _ in range(random.randint(0, 4)):
        world.run_for(random.randrange(400 * MS))
        _change_something(stage, company, keep=local)
    world.run_for(2 * SECOND)
    company.check_streams(_IN_FLIGHT_NS, is_lossless=True)
    for maker in company.makers:
        maker.check_load()
        if maker.producer.options.schedule == STRICT and maker.producer.plan:
            periods = [period for period in company.periods_us() if period % 1000 == 0]
            if periods == company.periods_us():
                maker.check_grid(periods)
    _count(stage, company)


def _change_something(stage: Stage, company: Company, keep: User) -> None:
    """Let a consumer come, go or change its period; one of them stays as it is."""
    random = stage.random
    others = [user for user in company.users if user.ended_ns is None and user is not keep]
    action = random.choice(["come", "go", "change"])
    if action == "come" or not others:
        node = random.choice([user.node for user in company.users])
        company.use(node, draw_periods(stage, 1)[0])
    elif action == "go":
        random.choice(others).stop()
    else:
        random.choice(others).set_period(draw_periods(stage, 1)[0])


@scenario
def timed_delay(stage: Stage) -> None:
    """Make the way longer for good, and shorter again: consumers get used to either."""
    random, world = stage.random, stage.world
    company = _gather(stage, makers=random.randint(1, 2), users=random.randint(1, 4), host={})
    longest_ns = max(company.periods_us()) * US
    for delay_ns in (random.randrange(10 * MS, 900 * MS), 0):
        stage.faults(delay_ns=delay_ns, jitter_ns=half_a_tick(company) // 4)
        world.run_for(delay_ns + 3 * longest_ns + SECOND)
        before = [(len(user.taken), user.consumer.missed) for user in company.users]
        world.run_for(3 * SECOND)
        for user, (taken, missed) in zip(company.users, before, strict=True):
            slots = 3 * SECOND / (user.period_us * US) * len(company.makers)
            found, lost = len(user.taken) - taken, user.consumer.missed - missed
            text = f"{found} of {slots:.1f} samples, {delay_ns / MS} ms late; {lost} missed (P3)"
            world.check(found >= slots - 2 * len(company.makers) and not lost, text)
            for maker in company.makers:
                company._check_once(user, maker)
    _count(stage, company)


@scenario
def timed_work(stage: Stage) -> None:
    """Let each sample take longer than ticks are apart: a slot that has room for it is served."""
    random, world = stage.random, stage.world
    company = _gather(stage, makers=random.randint(1, 2), users=random.randint(2, 5), host={})
    company.use(company.makers[0].node, draw_periods(stage, 1)[0])
    shortest_ns = min(company.periods_us()) * US
    for maker in company.makers:
        maker.work_ns = random.randrange(MS, max(2 * MS, shortest_ns // 3))
    world.run_for(3 * SECOND)
    company.check_streams(_IN_FLIGHT_NS + shortest_ns, is_lossless=True)
    _count(stage, company)


@scenario
def timed_loss(stage: Stage) -> None:
    """Lose samples: the next tick of the slot repairs, and what stays empty is counted."""
    random, world = stage.random, stage.world
    makers, users, copies = random.randint(1, 2), random.randint(1, 4), random.choice([1, 1, 2, 3])
    company = _gather(stage, makers=makers, users=users, host={}, copies=copies)
    company.loss = random.choice([0.02, 0.1, 0.3])
    company.interest_loss = random.choice([0, 0.1, 0.5])
    world.run_for(4 * SECOND)
    company.check_streams(_IN_FLIGHT_NS, is_lossless=False)
    company.check_counts(_IN_FLIGHT_NS)
    company.loss = company.interest_loss = 0
    world.run_for(4 * SECOND)  # Until all leases are renewed, and all that was missed is told.
    company.check_told()
    _count(stage, company)


@scenario
def timed_churn(stage: Stage) -> None:
    """Start, stop, change and kill: samples stop with the last interest or its lease."""
    random, world = stage.random, stage.world
    company = _gather(stage, makers=random.randint(1, 2), users=random.randint(1, 3), host={})
    for _ in range(random.randint(2, 8)):
        world.run_for(random.randrange(500 * MS))
        if random.random() < 0.2:
            node = stage.node()
            company.make(node, schedule=random.choice(_SCHEDULES))
        else:
            _change_something(stage, company, keep=company.users[0])
    world.run_for(500 * MS)
    company.check_streams(_IN_FLIGHT_NS, is_lossless=True)
    is_killed = random.random() < 0.5
    live = [user for user in company.users if user.ended_ns is None]
    longest_us = max(user.period_us for user in live)
    hosts = {user.node for user in live}
    producing = {maker.node for maker in company.makers}
    for user in live if not is_killed else ():
        user.stop()
    for node in hosts if is_killed else ():
        if node in producing:
            for user in live:
                if user.node is node:
                    user.stop()
        else:
            node.crash()
    lease_ns = max(LEASE_MS_MIN * MS, 5 * longest_us * US) if is_killed else 0
    end_ns = world.now + lease_ns + longest_us * US + 10 * MS
    world.run(end_ns + 4 * SECOND)
    for maker in company.makers:
        late = [one for one in maker.sent if one.true_ns > end_ns]
        world.check(not late, f"{len(late)} samples for nobody (P7)")
    _count(stage, company)


@scenario
def timed_clocks(stage: Stage) -> None:
    """Let clocks be apart, drift and step: at most one slot more or less for each step."""
    random, world = stage.random, stage.world
    drifts: dict[str, object] = {"drift_ppm": random.choice([-200, 0, 100])}
    company = _gather(stage, makers=1, users=random.randint(1, 3), host=drifts)
    maker = company.makers[0]
    for node in {user.node for user in company.users}:
        node.step_wall_clock(random.randrange(-10 * SECOND, 10 * SECOND))
    world.run_for(2 * SECOND)
    steps, start_ns = random.randint(1, 3), world.now
    before = [len(user.taken) for user in company.users]
    for _ in range(steps):
        world.run_for(random.randrange(1500 * MS, 3000 * MS))
        size_ns = random.choice([60 * MS, 1 * SECOND, 3600 * SECOND])
        maker.node.step_wall_clock(random.choice([-1, 1]) * size_ns)
    world.run_for(3 * SECOND)
    world.check(maker.node.core.timed.clock.steps == steps, "a step was not noticed")
    reported = [e for _, node, e in stage.ledger.events if isinstance(e, ClockStepped)]
    world.check(len(reported) >= steps, f"{steps} steps, {len(reported)} reported")
    for user, count in zip(company.users, before, strict=True):
        company._check_once(user, maker)
        expected = (world.now - start_ns) / (user.period_us * US)
        found = len(user.taken) - count
        text = f"{found} samples at {user.period_us} us, about {expected:.1f} expected (P14)"
        world.check(abs(found - expected) <= steps + 1.5, text)
        gaps = [
            after.true_ns - before.true_ns
            for before, after in zip(user.taken, user.taken[1:], strict=False)
        ]
        longest = max(gaps[count:], default=0)
        text = f"{longest / MS} ms without a sample at {user.period_us} us (P14)"
        world.check(longest <= 2 * user.period_us * US + _IN_FLIGHT_NS, text)
    _count(stage, company)


@scenario
def timed_bus_clock(stage: Stage) -> None:
    """Let nodes follow the clock of another: their ticks agree, and go on when it dies."""
    random, world = stage.random, stage.world
    company = Company(stage)
    nodes = [
        stage.node(stage.host(drift_ppm=random.choice([-100, 0, 50])))
        for _ in range(random.randint(3, 5))
    ]
    for node in nodes[1:]:
        node.step_wall_clock(random.choice([-1, 1]) * random.randrange(100 * MS, 3600 * SECOND))
        node.core.timed.time.use(BUS_CLOCK)
    world.run_for(100 * MS)
    for node in nodes:
        company.make(node)
    period_us = random.choice([50_000, 100_000])
    user = company.use(random.choice(nodes), period_us)
    world.run_for(4 * SECOND)
    clocks = [node.core.timed.clock for node in nodes]
    times = [clock.at(node.now) for clock, node in zip(clocks, nodes, strict=True)]
    apart_ns = max(times) - min(times)
    world.check(apart_ns <= 2 * MS, f"clocks are {apart_ns / MS} ms apart after 4 s (P14)")
    world.check(all(clock.is_synchronised for clock in clocks[1:]), "a follower does not know it")
    ticks = [one.tick_ns for one in user.taken if one.true_ns > world.now - SECOND]
    slots = {tick // (period_us * US) for tick in ticks}
    text = f"{len(ticks)} samples of {len(nodes)} producers are of {len(slots)} slots"
    world.check(len(slots) <= SECOND // (period_us * US) + 2, text)
    if user.node is not nodes[0]:
        nodes[0].crash()
    count = len(user.taken)
    world.run_for(4 * SECOND)
    expected = 4 * SECOND // (period_us * US) * (len(nodes) - 1)
    found = len(user.taken) - count
    world.check(found >= expected - 3 * len(nodes), f"{found} of {expected} samples afterwards")
    for maker in company.makers:
        company._check_once(user, maker)
    _count(stage, company)


@scenario
def timed_flood(stage: Stage) -> None:
    """Send a producer thousands of interests in a microsecond: it stays below its cap."""
    random, world = stage.random, stage.world
    company = Company(stage)
    node, liar, honest = stage.node(), stage.node(), stage.node()
    world.run_for(100 * MS)
    cap_hz = random.choice([50, 200, 1000])
    maker = company.make(node, schedule=random.choice(_SCHEDULES), cap_hz=cap_hz)
    user = company.use(honest, 100_000)
    user.is_plain = cap_hz > 10
    for round in range(10):
        for _ in range(50):
            fake = random.randbytes(12) if random.random() < 0.9 else liar.core.timed.node
            period_us = random.choice([1, 1, 7, 999, 33_333, random.randrange(1, 10**6)])
            wants = [Wanted(port, period_us) for port in range(2, random.randint(3, 6))]
            lie = Interest(
                fake, random.randrange(9), 0, 1, 1, round + 1, random.choice([100, 3000, 10**6]),
                0, 0, wants,
            )  # fmt: skip
            liar.core.endpoint.send(None, INTEREST, 0, encode_timed(lie))
        liar.wake()
        world.run_for(random.randrange(100 * MS))
    world.run_for(1 * SECOND)
    maker.check_load()
    world.check(len(maker.producer.interests.leases) <= INTERESTS_MAX, "too many interests (P16)")
    reports = [e for _, one, e in stage.ledger.events if isinstance(e, InterestRefused)]
    world.check(bool(reports), "nobody said that interests are refused (P9)")
    world.check(len(user.taken) >= 10, f"an honest consumer had {len(user.taken)} samples")
    _count(stage, company)


@scenario
def timed_replay(stage: Stage) -> None:
    """Send old and bent frames again: nothing is taken twice, nothing withdrawn comes back."""
    random, world = stage.random, stage.world
    company = _gather(stage, makers=2, users=2, host={})
    mallory = stage.node()
    world.run_for(500 * MS)
    leaver = company.users[1]
    leaver.stop()
    world.run_for(100 * MS)
    interests = [frame for frame in company.heard if frame[KIND_OFFSET] == INTEREST]
    others = [one.node for one in company.users] + [maker.node for maker in company.makers]
    for _ in range(200):
        frame = random.choice(random.choice([interests, company.heard]))
        node = random.choice(others)
        sender = next(one for one in stage.ledger.nodes if one.key == frame[14:34])
        stage.network._carry(sender, node, frame, world.now)
        body = _bend(stage, frame)
        if body is not None:
            mallory.core.endpoint.send(None, frame[KIND_OFFSET], 0, body)
            mallory.wake()
        world.run_for(random.randrange(10 * MS))
    periods = company.periods_us()
    for maker in company.makers:
        wanted = sorted(set(maker.producer.interests.periods))
        world.check(wanted == sorted(set(periods)), f"{wanted} us wanted, not {periods} (P15)")
    company.check_streams(_IN_FLIGHT_NS, is_lossless=True)
    refused = sum(node.core.timed.tally.refused_port for node in others)
    refused += sum(node.core.timed.tally.refused_hops for node in others)
    world.check(refused > 0, "a frame to port 1, or without a hop, was let in (P10)")
    _count(stage, company)


def _bend(stage: Stage, frame: bytes) -> bytes | None:
    """Address a frame to port 1, or leave it no hop."""
    if frame[KIND_OFFSET] == RESPONSE:
        response = decode_response(frame, HEADER_BYTES, len(frame))
        assert response is not None
        later = response._replace(
            sequence=response.sequence + 10**6, tick_ns=response.tick_ns + 5 * SECOND
        )
        if stage.random.random() < 0.5:
            return encode_response(later._replace(destination=1))
        return encode_response(later._replace(hops=0))
    interest = decode_timed(Interest, frame[HEADER_BYTES:])
    assert interest is not None
    return encode_timed(
        Interest(
            interest.node, interest.port, 1, interest.type, 1, interest.version + 10**6,
            interest.lease_ms, interest.mode, interest.scope, [Wanted(2, 1000)],
        )
    )  # fmt: skip


@scenario
def timed_choice(stage: Stage) -> None:
    """Choose one of several producers; when it dies, another serves within two slots."""
    random, world = stage.random, stage.world
    company = Company(stage)
    nodes = stage.nodes(random.randint(2, 3))
    user_node = stage.node()
    world.run_for(60 * MS)
    for node in nodes:
        company.make(node)
    period_us = random.choice([50_000, 100_000])
    user = company.use(user_node, period_us, mode=ONE)
    world.run_for(1 * SECOND)
    chosen = user.taken[-1].origin
    world.check(
        {one.origin for one in user.taken[3:]} == {chosen}, "samples of more than one (ONE)"
    )
    victim = next(maker for maker in company.makers if maker.producer.origin == chosen)
    victim.node.crash()
    killed_ns = world.now
    world.run_for(1 * SECOND)
    first = next((one for one in user.taken if one.true_ns > killed_ns + 10 * MS), None)
    world.check(first is not None, "nobody took over")
    assert first is not None
    waited_ns = first.true_ns - killed_ns
    text = f"{waited_ns / MS} ms until another took over"
    world.check(waited_ns <= 4 * period_us * US + 50 * MS, text)
    _count(stage, company)


@scenario
def timed_nearest(stage: Stage) -> None:
    """Prefer the nearest of several producers, also a later one; without it, the next nearest."""
    random, world = stage.random, stage.world
    company = Company(stage)
    far, near, user_node = stage.nodes(3)
    stage.network.pipes.open(near, user_node)
    world.run_for(60 * MS)
    period_us = random.choice([50_000, 100_000])
    user = company.use(user_node, period_us, mode=NEAREST)
    # In any order: nearer ones take over, others change nothing.
    nodes = [far, near, user_node]
    makers = {}
    for node in random.sample(nodes, len(nodes)):
        makers[node] = company.make(node)
        world.run_for(1 * SECOND)
        _check_nearest(stage, user, makers)
    for node in (user_node, near):
        makers.pop(node).stop()
        world.run_for(1 * SECOND)
        _check_nearest(stage, user, makers)
    world.check(user.consumer.missed <= 2 * len(nodes), f"{user.consumer.missed} slots missed")
    _count(stage, company)


def _check_nearest(stage: Stage, user: User, makers: dict[SimulatedNode, Maker]) -> None:
    """Expect samples of the one that is nearest, and for some time of no other."""
    here = user.node
    pipes = stage.network.pipes
    steps = {node: 0 if node is here else 1 if pipes.is_open(node, here) else 2 for node in makers}
    nearest = makers[min(steps, key=steps.__getitem__)].producer.origin
    since_ns = stage.world.now - 500 * MS
    origins = {one.origin for one in user.taken if one.true_ns > since_ns}
    stage.world.check(origins == {nearest}, f"samples of {origins}, not of {nearest!r} (NEAREST)")


@scenario
def timed_types(stage: Stage) -> None:
    """Mix types, several consumers a vehicle: each gets its own, and one interest goes out."""
    random, world = stage.random, stage.world
    company = Company(stage)
    cars = stage.nodes(random.randint(2, 4))
    world.run_for(60 * MS)
    types = range(1, random.randint(3, 6))
    for type in types:
        company.make(random.choice(cars), type, schedule=random.choice(_SCHEDULES))
    for _ in range(random.randint(4, 12)):
        company.use(random.choice(cars), draw_periods(stage, 1)[0], random.choice(types))
    world.run_for(2 * SECOND)
    company.check_streams(_IN_FLIGHT_NS, is_lossless=True)
    for maker in company.makers:
        wanting = {user.node for user in company.users if user.consumer.type == maker.producer.type}
        leases = maker.producer.interests.leases.values()
        world.check(
            len(leases) == len(wanting), f"{len(leases)} interests of {len(wanting)} vehicles"
        )
        told = {period for lease in leases for period in lease.periods_us}
        wanted = set(company.periods_us(maker.producer.type))
        world.check(told == wanted, f"{sorted(told)} us told, {sorted(wanted)} wanted (P13)")
    _count(stage, company)


@scenario
def timed_newcomer(stage: Stage) -> None:
    """Let consumers of long periods, or of one sample, come one by one: each is served at once."""
    random, world = stage.random, stage.world
    company = Company(stage)
    maker, *cars = stage.nodes(random.randint(2, 3))
    world.run_for(60 * MS)
    company.make(maker, schedule=random.choice((DUE, HARMONISED)))
    for _ in range(random.randint(3, 8)):
        seconds = random.choice([0, random.randrange(2, 60), random.randrange(2, 60)])
        user = company.use(random.choice([maker, *cars]), seconds * 1_000_000)
        world.run_for(20 * MS)
        world.check(len(user.taken) == 1, f"{user.node} has {len(user.taken)} samples after 20 ms")
        world.run_for(random.randrange(300 * MS))
    for user in company.users:
        is_enough = bool(user.period_us) or len(user.taken) == 1
        world.check(is_enough, f"{user.node} wants one sample, and has {len(user.taken)}")
    _count(stage, company)


@scenario
def timed_crowd(stage: Stage) -> None:
    """Have more consumers in a vehicle than an interest names: the divisor is that of all."""
    random, world = stage.random, stage.world
    company = Company(stage)
    cars = stage.nodes(2)
    is_stateless = random.random() < 0.5
    for car in cars:
        car.core.timed.office.is_stateless = is_stateless
    world.run_for(60 * MS)
    maker = company.make(cars[0], schedule=STRICT)
    node = random.choice(cars)
    users = [company.use(node, 20_000) for _ in range(random.randint(64, 90))]
    users.append(company.use(node, random.choice([30_000, 50_000, 70_000])))
    for _ in range(random.randint(1, 5)):
        world.run_for(random.randrange(100 * MS))
        users.pop(random.randrange(len(users))).stop()
    world.run_for(300 * MS)
    maker.check_grid(company.periods_us())
    _count(stage, company)


def _count(stage: Stage, company: Company) -> None:
    counts = stage.world.counts
    counts["samples"] += sum(len(maker.sent) for maker in company.makers)
    counts["taken"] += sum(len(user.taken) for user in company.users)
    counts["slots_missed"] += sum(user.consumer.missed for user in company.users)
