"""Planted bugs of services, some of them those of the systems that these were first built in."""

from hashlib import sha1
from typing import Any

import msgspec

from hubbub.limits import SECOND
from hubbub.protocol.rendezvous import client, spread
from hubbub.protocol.rendezvous.absent import Absent
from hubbub.protocol.rendezvous.client import TOTAL, Client, Subscribed
from hubbub.protocol.rendezvous.copies import Copies
from hubbub.protocol.rendezvous.everywhere import Everywhere
from hubbub.protocol.rendezvous.fanout import Branch
from hubbub.protocol.rendezvous.group import Ear, Group
from hubbub.protocol.rendezvous.handover import HandOvers
from hubbub.protocol.rendezvous.hops import Hops
from hubbub.protocol.rendezvous.listing import Line, Listing
from hubbub.protocol.rendezvous.manager import Manager
from hubbub.protocol.rendezvous.placement import XorPlacement
from hubbub.protocol.rendezvous.post import Post
from hubbub.protocol.rendezvous.publishing import Lane, Publishing
from hubbub.protocol.rendezvous.roles import Happening
from hubbub.protocol.rendezvous.seat import Delivered, Place, allow_everything
from hubbub.protocol.rendezvous.seen import Origin, Seen
from hubbub.protocol.rendezvous.sequencer import Sequencer
from hubbub.protocol.rendezvous.service import Service
from hubbub.protocol.rendezvous.spread import Charge, Spread
from hubbub.protocol.rendezvous.swim import Swim
from hubbub.protocol.rendezvous.view import Member, View
from hubbub.simulation.bugs import Method, bug
from hubbub.wire.header import HEADER_BYTES
from hubbub.wire.services import (
    BARE,
    BATCH,
    ENVELOPE_BYTES,
    KEY_BYTES,
    PASSED,
    PUBLISH,
    STALE,
    TAKEN,
    UNAVAILABLE,
    Answer,
    Entry,
    Request,
)

_KEY_AT = HEADER_BYTES + ENVELOPE_BYTES + 1


@bug(Manager, "_pass", "defect_hole_at_hand_over", seed=7)
def request_for_another_dropped(sound: Method) -> Method:
    """Take a request that is for somebody closer, and do nothing."""
    return lambda self, now, request, target: Answer(request.hop, TAKEN)


@bug(Manager, "_route", "services_churn")
def passed_on_to_somebody_farther(sound: Method) -> Method:
    """Pass requests on to one of the next, whichever."""

    def route(self: Manager, key: bytes, service: Service | None) -> bytes | None:
        target: bytes | None = sound(self, key, service)
        return target if target is None else self.view.rank(key, 4)[-1]

    return route


@bug(Listing, "unsubscribe", "defect_requests_out_of_order")
def end_not_remembered(sound: Method) -> Method:
    """Strike a subscriber off, and forget that it was one."""

    def unsubscribe(self: Listing, now: int, node: bytes, stamp: int) -> int:
        status: int = sound(self, now, node, stamp)
        if status != STALE:
            self.lines.pop(node, None)
        self.count = sum(line.is_in for line in self.lines.values())
        return status

    return unsubscribe


@bug(Seen, "take", "services_loss")
def message_taken_each_time(sound: Method) -> Method:
    """Take a message as often as it comes."""
    return lambda self, origin, first, count, now: (1 << count) - 1


@bug(Seen, "take", "services_burst")
def batch_taken_each_time(sound: Method) -> Method:
    """Look only at single messages whether they have come."""

    def take(self: Seen, origin: Any, first: int, count: int, now: int) -> int:
        new: int = sound(self, origin, first, count, now)
        return new if count == 1 else (1 << count) - 1

    return take


@bug(Publishing, "_cut", "services_burst")
def batch_counted_as_one(sound: Method) -> Method:
    """Give the messages of a batch one number, and the next the one behind it."""

    def cut(self: Publishing, now: int, lane: Lane) -> None:
        last, is_batch = lane.last, len(lane.waiting) > 1
        sound(self, now, lane)
        if is_batch:
            lane.last = last + 1

    return cut


@bug(Publishing, "_finish", "services_burst", seed=3)
def waiting_forgotten(sound: Method) -> Method:
    """Send nothing of what waits when there is room for it, nor later."""

    def finish(self: Publishing, now: int, published: Any, *rest: Any) -> None:
        if published.flags & BATCH:
            published.lane.waiting.clear()
        sound(self, now, published, *rest)

    return finish


@bug(Hops, "is_crowded", "services_crowded")
def crowd_not_minded(sound: Method) -> Method:
    """Take messages as they come, however far those who are to have them are behind."""
    return lambda self, now: False


@bug(Client, "manager_changed", "services_partition")
def any_change_believed(sound: Method) -> Method:
    """Believe whoever says that there is a new manager."""

    def changed(
        self: Client, now: int, key: bytes, sender: bytes, manager: bytes, epoch: int
    ) -> None:
        one = self.subscribed.get(key)
        if one is not None:
            one.manager, one.epoch = manager, epoch - epoch % 3

    return changed


@bug(Line, "entry", "services_subjects", seed=7)
def patterns_not_handed_over(sound: Method) -> Method:
    """Tell others who subscribes, and not to what."""

    def entry(self: Line) -> Entry:
        whole: Entry = sound(self)
        return msgspec.structs.replace(whole, patterns=[])

    return entry


@bug(Everywhere, "tell", "services_everywhere")
def newcomers_not_told(sound: Method) -> Method:
    """Tell what is wanted everywhere to those who are there, and to nobody who comes."""

    def tell(self: Everywhere, now: int) -> None:
        if not self._told:
            sound(self, now)

    return tell


@bug(Manager, "_unheard", "services_everywhere")
def service_of_nobody_heard_by_nobody(sound: Method) -> Method:
    """Say that a service is unavailable, whoever wants its messages by a wildcard."""

    def unheard(self: Manager, now: int, request: Request) -> Answer:
        return self._answer(now, request, None, UNAVAILABLE)

    return unheard


@bug(Seen, "take", "services_subjects", seed=6)
def subjects_counted_together(sound: Method) -> Method:
    """Take the numbers of all subjects of a publisher for one sequence."""
    return lambda self, origin, first, count, now: sound(self, origin[:2], first, count, now)


@bug(HandOvers, "take", "services_join", seed=2, by="at once (H2)")
def list_handed_over_in_part(sound: Method) -> Method:
    """Take half of a list for all of it: the rest is back with its next renewal, and has missed."""

    def take(self: HandOvers, now: int, sender: bytes, request: Request, service: Service) -> None:
        some = request.extra.entries[::2]
        extra = msgspec.structs.replace(request.extra, entries=some)
        sound(self, now, sender, request._replace(extra=extra), service)

    return take


@bug(Copies, "update", "services_managers_crash", by="(H12)")
def no_copies(sound: Method) -> Method:
    """Keep the list to oneself."""

    def update(self: Copies, now: int, service: Service) -> None:
        service.copy_ns = 1 << 63

    return update


@bug(Copies, "gathered_ns", "services_lists_lost")
def list_not_gathered(sound: Method) -> Method:
    """Say that a service is wanted by nobody, as soon as nobody has its list."""
    return lambda self, service: 0


@bug(Copies, "_silent", "services_newcomer_and_lists_lost", seed=3)
def newcomer_waits_for_nobody(sound: Method) -> Method:
    """Take it for certain that there is no list if those who would have it say nothing."""
    return lambda self, service: (0, self.seat.node)


@bug(Manager, "member_gone", "services_churn", seed=4)
def dead_stay_on_the_list(sound: Method) -> Method:
    """Wait for the lease of a subscriber that is known to be dead."""
    return lambda self, now, node: None


@bug(View, "_begin", "services_flapping")
def newcomer_counts_at_once(sound: Method) -> Method:
    """Hand services to whoever comes."""

    def begin(self: View, now: int, member: Member) -> None:
        sound(self, now, member)
        member.is_settled = True
        self._settled.add(member.number)

    return begin


@bug(Hops, "advance", "services_loss", seed=2)
def nothing_repeated(sound: Method) -> Method:
    """Send everything once."""

    def advance(self: Hops, now: int) -> None:
        self._timers.clear()

    return advance


@bug(Charge, "go_round", "services_tree", seed=2)
def dead_branch_not_repaired(sound: Method) -> Method:
    """Leave those alone who are below a node that does not answer."""
    return lambda self, now, node: None


@bug(Hops, "_miss", "services_tree_slow")
def late_forwarder_waited_for(sound: Method) -> Method:
    """Go round who passes messages on only when it is given up."""
    return lambda self, now, node, track, sent: None


@bug(Spread, "order", "services_tree_slow")
def silent_forwarder_chosen_again(sound: Method) -> Method:
    """Let those pass messages on who acknowledged none of the last ones."""
    return lambda self, nodes: nodes


@bug(Charge, "go_round", "services_tree_slow")
def late_branch_served_straight(sound: Method) -> Method:
    """Send a message to all who are below one that is late, instead of to one of them."""

    def go_round(self: Charge, now: int, node: bytes) -> None:
        below, self.below = self.below, []
        for one in below:
            charge = Charge(self._spread, self.info, [], {}, is_part=False)
            self._spread.leave_to(now, one, charge)

    return go_round


@bug(Sequencer, "push", "services_order", seed=4)
def order_of_arrival(sound: Method) -> Method:
    """Hand messages out as they come."""
    return lambda self, now, number, item, count=1: [item]


@bug(Swim, "_object", "services_churn", seed=336)
def death_not_contradicted(sound: Method) -> Method:
    """Say nothing when others say that we are dead."""
    return lambda self, now, record: None


@bug(Copies, "keep", "services_kept")
def kept_value_kept_alone(sound: Method) -> Method:
    """Tell nobody else of the value that a service keeps."""

    def keep(self: Copies, now: int, service: Service) -> None:
        service.kept_until_ns = now

    return keep


@bug(Client, "_end", "services_calm")
def end_not_sent(sound: Method) -> Method:
    """Leave a service without telling its manager."""

    def end(self: Client, now: int, ending: Any) -> None:
        ending.due_ns = 1 << 63

    return end


@bug(Manager, "_answer", "services_loss", seed=10)
def result_not_told(sound: Method) -> Method:
    """Leave whoever asked by others without an answer."""

    def answer(
        self: Manager, now: int, request: Request, service: Any, status: int, number: int = 0
    ) -> Answer:
        direct = request._replace(hops=0)
        result: Answer = sound(self, now, direct, service, status, number)
        return result._replace(status=PASSED) if request.sequence % 7 == 0 else result

    return answer


@bug(Manager, "_serve", "services_policy")
def policy_not_asked(sound: Method) -> Method:
    """Serve everybody, whatever the policy says."""

    def serve(self: Manager, now: int, service: Service, request: Request) -> Answer:
        policy, self.seat.policy = self.seat.policy, allow_everything
        answer: Answer = sound(self, now, service, request)
        self.seat.policy = policy
        return answer

    return serve


@bug(Spread, "send", "services_first_version")
def frames_sent_to_the_first_version(sound: Method) -> Method:
    """Take every subscriber for one of us."""

    def send(self: Spread, now: int, lines: list[Line], info: Request) -> None:
        for line in lines:
            line.flags &= ~BARE
        sound(self, now, lines, info)

    return send


@bug(Absent, "keep", "services_standing_still")
def nothing_kept_for_who_stands_still(sound: Method) -> Method:
    """Forget what was on its way to a subscriber that seems to be dead."""

    def keep(self: Absent, now: int, node: bytes, info: Request) -> None:
        return

    return keep


@bug(Post, "_say", "services_speaking_first_version")
def empty_payload_sent_bare(sound: Method) -> Method:
    """Say in the words of the first version what it has none for."""

    def say(self: Post, now: int, targets: Any, request: Request, done: Any) -> bool:
        if request.message.type == PUBLISH and not request.message.rest:
            for _, place in targets:
                self.send_bare(place, request.message)
        said: bool = sound(self, now, targets, request, done)
        return said

    return say


@bug(View, "measure", "services_placement", seed=2)
def placement_measured_by_xor_alone(sound: Method) -> Method:
    """Compare nodes by XOR, whatever places the services."""
    xor = XorPlacement()

    def rank(self: View, key: bytes, node: bytes) -> float:
        placement, self.placement = self.placement, xor
        measured: float = sound(self, key, node)
        self.placement = placement
        return measured

    return rank


@bug(Group, "missed", "services_group_silent")
def silence_of_the_group_not_noticed(sound: Method) -> Method:
    """Go on counting on who did not acknowledge what went to the group."""
    return lambda self, now, node: None


@bug(Group, "_part", "services_group_silent", seed=2)
def everybody_believed_to_hear_the_group(sound: Method) -> Method:
    """Send to the group what is for many, whoever said that it hears it."""
    return lambda self, now, targets, size_bytes: (targets, [])


@bug(Hops, "expect", "services_group_loss")
def group_believed_to_lose_nothing(sound: Method) -> Method:
    """Wait for no acknowledgement of what goes to the group."""
    return lambda self, now, targets, hop, frame, done: None


@bug(Ear, "_is_ours", "services_group_loss")
def own_message_heard_in_the_group(sound: Method) -> Method:
    """Take whatever is of a service that we subscribed to, also what we do not want."""
    return lambda self, manager, data: data[_KEY_AT : _KEY_AT + KEY_BYTES] in self._subscribed


@bug(Group, "is_worth_it", "services_group_policy")
def policy_not_asked_about_the_group(sound: Method) -> Method:
    """Tell everybody in the group what a policy lets some hear."""
    return lambda self, targets: len(targets) > 2


# One for each promise that the others break only together with another one.


@bug(Listing, "subscribe", "services_calm", by="(H2)")
def subscriber_acknowledged_and_not_entered(sound: Method) -> Method:
    """Tell the fourth subscriber, and all who come later, that they are on the list."""

    def subscribe(
        self: Listing, now: int, node: bytes, stamp: int, flags: int, place: Place | None,
        lease_ns: int, patterns: Any = (),
    ) -> tuple[int, bool]:  # fmt: skip
        if self.count > 2 and node not in self.lines:
            return TAKEN, False
        status: tuple[int, bool] = sound(self, now, node, stamp, flags, place, lease_ns, patterns)
        return status

    return subscribe


@bug(Seen, "take", "services_calm", by="(H5)")
def message_of_a_stranger_not_taken(sound: Method) -> Method:
    """Take the first message of a publisher for one that has come already."""

    def take(self: Seen, origin: Origin, first: int, count: int, now: int = 0) -> int:
        is_stranger = origin not in self._heard
        new: int = sound(self, origin, first, count, now)
        return 0 if is_stranger else new

    return take


@bug(Client, "_put_in_order", "services_order", by="in total (H8)")
def total_order_by_arrival(sound: Method) -> Method:
    """Put the messages of each publisher in order, and those of all as they come."""

    def put(self: Client, now: int, one: Subscribed, delivered: Delivered) -> None:
        if one.order == TOTAL:
            self._hand_out(one, [delivered])
        else:
            sound(self, now, one, delivered)

    return put


@bug(Manager, "_take_over", "services_managers_crash", by="as managing (H10)")
def epoch_goes_back_at_a_take_over(sound: Method) -> Method:
    """Count one back, not on, when the manager has died."""

    def take_over(self: Manager, now: int, service: Service, happening: Happening) -> None:
        epoch = service.epoch
        sound(self, now, service, happening)
        service.epoch = max(0, epoch - 1)

    return take_over


@bug(Client, "unsubscribe", "services_churn", by="(H11)")
def end_not_minded(sound: Method) -> Method:
    """Go on handing out what comes, whatever the application has ended."""

    def unsubscribe(self: Client, now: int, key: bytes) -> None:
        self.seat.counters["ends_not_minded"] += 1

    return unsubscribe


@bug(Publishing, "members_changed", "services_managers_crash", by="(H12)")
def publisher_in_no_hurry(sound: Method) -> Method:
    """Ask again only some seconds after it is known that a manager has died."""

    def members_changed(self: Publishing, now: int) -> None:
        for lane in self.open.values():
            for published in lane.list_open():
                published.due_ns = self._plan(now + 3 * SECOND)

    return members_changed


@bug(spread, "plan", "services_tree", by="sends a message to")
def star_for_any_number(sound: Method) -> Method:
    """Send to all subscribers oneself, however many they are."""

    def plan(nodes: list[bytes]) -> list[Branch]:
        return [(node, []) for node in nodes]

    return plan


@bug(Swim, "_revive", "services_partition", by="(H15)")
def parted_for_ever(sound: Method) -> Method:
    """Never ask again who is dead, nor at the addresses that were given."""

    def revive(self: Swim, now: int) -> None:
        self._revive_ns = now + 2 * SECOND
        self.seeds = []

    return revive


@bug(client, "service_key", "defect_names_in_other_charsets", by="(H2)")
def name_hashed_as_typed(sound: Method) -> Method:
    """Make the key of a service of whatever signs its name was typed in."""

    def service_key(name: str) -> bytes:
        return sha1(name.encode(), usedforsecurity=False).digest()

    return service_key


@bug(Manager, "stood_still", "services_manager_still", by="(H7)")
def manager_that_never_doubts_itself(sound: Method) -> Method:
    """Serve on after any pause, though another may have taken the place."""
    return lambda self, now: None
