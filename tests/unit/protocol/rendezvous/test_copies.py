"""Copies of lists: who has one and its manager agree, also if each knows what the other lacks."""

from hubbub.limits import MS, SECOND
from hubbub.protocol.rendezvous.listing import Listing
from hubbub.protocol.rendezvous.service import Service
from hubbub.simulation.services import ServiceNode, Town
from hubbub.simulation.stage import Stage
from hubbub.wire.services import Entry, service_key

NAME = "news"
STRANGER = b"nobody-there"


def service_at(node: ServiceNode) -> Service:
    return node.machine.manager.services[service_key(NAME)]


def send_whole_list(town: Town, manager: ServiceNode, holder: ServiceNode) -> None:
    service = service_at(manager)
    service.copies[holder.id] = True
    manager.machine.manager.copies.update(town.world.now, service)
    manager._turn()
    town.world.run_for(100 * MS)


def listed(listing: Listing) -> set[bytes]:
    return {line.node for line in listing}


def test_subscriber_that_only_a_copy_knows_comes_back_to_the_list() -> None:
    """A manager with an older list served it until the others renewed what they had asked for."""
    town = Town(Stage(1))
    nodes = town.open_subscribed(6, NAME)
    manager, holder, *_, reader = town.ranked(NAME)
    whole = Listing()
    entries = service_at(manager).listing.entries()
    whole.merge(town.world.now, [entry for entry in entries if entry.node != reader.id])
    service_at(manager).listing = whole
    send_whole_list(town, manager, holder)
    assert listed(service_at(manager).listing) == {node.id for node in nodes}
    town.check_calm([NAME])


def test_dead_one_that_only_a_copy_knows_is_struck_off_there_too() -> None:
    """A copy kept such lines for good: each whole list said nothing of them."""
    town = Town(Stage(2))
    nodes = town.open_subscribed(6, NAME)
    manager, holder = town.ranked(NAME)[:2]
    stranger = Entry(STRANGER, 1, True, 0, ("10.66.0.1", 1))
    service_at(holder).listing.merge(town.world.now, [stranger])
    send_whole_list(town, manager, holder)
    assert STRANGER in listed(service_at(manager).listing)
    town.world.run_for(5 * SECOND)
    for node in (manager, holder):
        assert listed(service_at(node).listing) == {one.id for one in nodes}


def test_copy_is_given_to_who_asks_also_if_its_manager_seems_to_live() -> None:
    """Who knew that a manager is dead sooner than those with copies went without its list."""
    town = Town(Stage(3))
    nodes = town.open_subscribed(6, NAME)
    manager, asker, holder = town.ranked(NAME)[:3]
    asker.machine.manager.services.clear()
    manager.crash()
    holder.machine.manager.answer_query(town.world.now, asker.id, service_key(NAME))
    holder._turn()
    town.world.run_for(100 * MS)
    assert holder.machine.view.is_present(manager.id)
    assert listed(service_at(asker).listing) == {node.id for node in nodes}
