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


def test_heir_that_no_copy_has_on_the_list_enters_itself_before_it_serves() -> None:
    """It told itself that it is the manager now, took that for a confirmation, and heard nothing.

    Its subscription had come to the manager right before that was killed.
    """
    town = Town(Stage(4))
    town.open_subscribed(6, NAME)
    manager, heir, second, *_, publisher = town.ranked(NAME)
    for holder in (heir, second):
        entries, whole = service_at(holder).listing.entries(), Listing()
        whole.merge(town.world.now, [entry for entry in entries if entry.node != heir.id])
        service_at(holder).listing = whole
    manager.crash()
    payload = town.publish(publisher, NAME)
    town.world.run_while(lambda: not service_at(heir).is_served, 5 * SECOND)
    town.world.run_for(500 * MS)
    town.check_complete([payload], [heir, second, publisher])
    assert heir.id in listed(service_at(heir).listing)


def test_message_outlives_managers_that_die_one_after_the_other() -> None:
    """It was given up after 10 s, in which no heir had lived long enough to serve anything."""
    town = Town(Stage(5))
    town.open_subscribed(16, NAME)
    first, *heirs = town.ranked(NAME)
    first.crash()
    payload = town.publish(heirs[-1], NAME)
    for heir in heirs[:11]:
        town.world.run_for(1 * SECOND)
        heir.crash()
    town.world.run_for(8 * SECOND)
    town.check_complete([payload], town.alive())
