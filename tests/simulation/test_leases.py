"""What the checker of samples reckons as owed, by the interests that reached a producer."""

from hubbub.limits import LEASE_MS_MIN, MS, SECOND
from hubbub.simulation.leases import Leases
from hubbub.wire.timed import GATEWAY_PORT, Interest, Wanted

NODE = 3


def interest(*, is_withdrawn: bool = False) -> Interest:
    wants = [] if is_withdrawn else [Wanted(2, 70_000, 0, 0)]
    return Interest(bytes(12), 0, GATEWAY_PORT, 1, 1, 1, LEASE_MS_MIN, 0, 0, wants, "/t/1", b"")


def test_nothing_is_owed_between_the_end_of_a_lease_and_the_next_renewal() -> None:
    leases = Leases()
    for heard_ns in (0, 1 * SECOND, 4500 * MS):
        leases.hear(heard_ns, NODE, interest())
    times_ms = [0, 2, 2990, 3990, 4000, 4499, 4500, 4502, 7490, 7500]
    held = [ms for ms in times_ms if leases.holds(NODE, ms * MS, ms * MS)]
    assert held == [2, 2990, 3990, 4502, 7490]


def test_copies_are_owed_that_go_before_a_lease_ends() -> None:
    leases = Leases()
    leases.hear(0, NODE, interest())
    leases.hear(3020 * MS, NODE, interest())
    assert leases.holds(NODE, 2900 * MS, 2990 * MS)
    assert not leases.holds(NODE, 2990 * MS, 3010 * MS)
    assert not leases.holds(NODE, 2990 * MS, 3040 * MS)  # It ended meanwhile.


def test_a_node_that_sent_no_interest_over_the_wire_is_owed_everything() -> None:
    leases = Leases()
    leases.hear(0, NODE, interest(is_withdrawn=True))
    assert leases.holds(NODE, 0, 9 * SECOND)
