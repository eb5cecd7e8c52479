"""What a node is to a service: every role meets everything that can happen."""

import itertools

import pytest

from hubbub.protocol.rendezvous.roles import TRANSITIONS, Happening, Role, follow

PAIRS = list(itertools.product(Role, Happening))


@pytest.mark.parametrize(("role", "happening"), PAIRS)
def test_every_pair_leads_where_the_table_says_or_nowhere(role: Role, happening: Happening) -> None:
    assert follow(role, happening) is TRANSITIONS.get((role, happening), role)


def test_every_role_can_be_reached_and_left() -> None:
    reached, left = set(TRANSITIONS.values()), {role for role, _ in TRANSITIONS}
    assert reached == left == set(Role)


def test_list_is_served_at_every_moment_of_a_hand_over() -> None:
    role = follow(Role.MANAGING, Happening.CLOSER_CAME)
    assert role is Role.HANDING
    assert follow(role, Happening.REFUSED) is Role.MANAGING
    assert follow(role, Happening.HANDED) is Role.FORWARDING
