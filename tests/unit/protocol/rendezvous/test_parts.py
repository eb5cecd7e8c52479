"""The small machines of services, each alone: windows, lists, order, trees, placement, hops."""

from collections.abc import Callable
from random import Random

import pytest

from hubbub.errors import ConfigurationError
from hubbub.limits import (
    BARE_LEASE,
    DIRECT_FAN_OUT,
    HOP_BACKLOG,
    HOP_TIMEOUT,
    HOP_TRIES,
    HOP_WINDOW,
    MS,
    ORDER_LEAP,
    ORDER_LEAP_PATIENCE,
    ORDER_PATIENCE,
    SECOND,
    SEEN_KEPT,
    SEEN_PUBLISHERS_CEILING,
    SEEN_PUBLISHERS_MAX,
    SEEN_WINDOW,
    SERVICE_LEASE,
    SUBSCRIBERS_MAX,
    TREE_FAN_OUT,
    TREE_NODES_PER_FRAME,
)
from hubbub.protocol.rendezvous import track
from hubbub.protocol.rendezvous.doubts import Doubts
from hubbub.protocol.rendezvous.fanout import cut, plan, plan_below
from hubbub.protocol.rendezvous.hops import Hops
from hubbub.protocol.rendezvous.listing import Listing
from hubbub.protocol.rendezvous.placement import (
    PLACEMENTS,
    XorPlacement,
    find_placement,
    shares,
)
from hubbub.protocol.rendezvous.profile import FAST, SEED, find_profile
from hubbub.protocol.rendezvous.seat import NEVER, GivenUp, Seat
from hubbub.protocol.rendezvous.seen import Seen
from hubbub.protocol.rendezvous.sequencer import Sequencer
from hubbub.protocol.rendezvous.view import State, View
from hubbub.wire.header import NOTICE, SERVICE
from hubbub.wire.payloads import join
from hubbub.wire.services import (
    BARE,
    BATCH,
    INFO,
    NOTHING,
    STALE,
    TAKEN,
    Answer,
    Entry,
    Message,
    Query,
    Record,
    Request,
    distance,
    encode_notice,
    encode_request,
    node_key,
)

ORIGIN = (b"abcdefghijkl", 7)
NODE = b"ABCDEFGHIJKL"
NODES = [bytes([high, low]) * 6 for high in range(8) for low in range(250)]


# Which messages have come.


def test_message_is_new_once_in_whatever_order_messages_come() -> None:
    random, seen = Random(1), Seen()
    numbers = list(range(1, 1000)) * 3
    random.shuffle(numbers)
    taken = [number for number in numbers if seen.is_new(ORIGIN, number)]
    assert sorted(taken) == list(range(1, 1000))


def test_message_older_than_the_window_counts_as_seen() -> None:
    seen = Seen()
    assert seen.is_new(ORIGIN, SEEN_WINDOW + 1)
    assert not seen.is_new(ORIGIN, 1)
    assert seen.is_new(ORIGIN, 2)


def test_batch_is_checked_as_its_messages_would_be_one_by_one() -> None:
    random = Random(4)
    together, one_by_one = Seen(), Seen()
    highest = 0
    for _ in range(2000):
        first, count = max(1, highest + random.randrange(-300, 60)), random.randint(1, 100)
        highest = max(highest, first + count - 1)
        bits = together.take(ORIGIN, first, count)
        last = first + count - 1
        found = [number for number in range(first, last + 1) if bits >> last - number & 1]
        assert found == [n for n in range(first, last + 1) if one_by_one.is_new(ORIGIN, n)]


def test_messages_in_order_with_some_missing_late_or_twice_are_told_as_a_set_would() -> None:
    random, seen, heard = Random(9), Seen(), set[int]()
    highest = 0
    for _ in range(3000):
        step = random.choice([1, 1, 1, 1, 1, 1, 1, 2, 5, 0, -1, -3, -40])
        first, count = max(1, highest + step), random.choice([1, 1, 1, 7])
        numbers = range(first, first + count)
        bits = seen.take(ORIGIN, first, count)
        found = [n for n in numbers if bits >> numbers[-1] - n & 1]
        assert found == [n for n in numbers if n not in heard]
        heard.update(numbers)
        highest = max(highest, numbers[-1])


def test_gap_is_known_after_a_window_of_messages_without_one() -> None:
    seen = Seen()
    assert seen.is_new(ORIGIN, 1) and seen.is_new(ORIGIN, 3)
    for number in range(4, SEEN_WINDOW + 10):
        assert seen.is_new(ORIGIN, number)
    assert not seen.is_new(ORIGIN, 2)  # Below the window: it cannot be told any more.
    assert not seen.is_new(ORIGIN, 3)
    assert seen.is_new(ORIGIN, SEEN_WINDOW + 10)


def test_publishers_that_are_remembered_are_bounded() -> None:
    seen = Seen()
    for number in range(2 * SEEN_PUBLISHERS_CEILING + 10):
        assert seen.is_new((NODE, number), 1)
    assert len(seen) == SEEN_PUBLISHERS_CEILING + 10
    assert seen.is_new((NODE, 0), 1) and not seen.is_new((NODE, SEEN_PUBLISHERS_CEILING), 1)


def test_publisher_is_remembered_as_long_as_anything_of_it_may_be_repeated() -> None:
    seen, now = Seen(), 5 * SEEN_KEPT
    others = iter(range(1, 1 << 20))
    for number in range(1, 4):
        assert seen.is_new((NODE, 0), number, now)
        for _ in range(5):
            now += SEEN_KEPT // 5 - 1
            for _ in range(SEEN_PUBLISHERS_MAX + 1):
                seen.take((NODE, next(others)), 1, 1, now)
        assert not seen.is_new((NODE, 0), number, now)
    assert len(seen) < next(others)  # Those who were silent since are forgotten.


# Lists.


def test_subscription_that_was_overtaken_by_its_end_stays_ended() -> None:
    listing = Listing()
    assert listing.unsubscribe(0, NODE, 6) == TAKEN
    assert listing.subscribe(0, NODE, 5, 0, None, SERVICE_LEASE) == (STALE, False)
    assert listing.subscribe(0, NODE, 7, 0, None, SERVICE_LEASE) == (TAKEN, True)
    assert listing.count == 1


def test_subscriber_that_does_not_renew_is_struck_off_after_its_lease() -> None:
    listing = Listing()
    listing.subscribe(0, NODE, 5, 0, None, SERVICE_LEASE)
    listing.subscribe(SERVICE_LEASE // 2, NODE, 5, 0, None, SERVICE_LEASE)
    assert listing.expire(SERVICE_LEASE) == []
    assert listing.expire(2 * SERVICE_LEASE) == [NODE]
    assert listing.count == 0
    listing.expire(4 * SERVICE_LEASE)
    assert not listing.lines


def test_lists_merge_to_the_same_in_any_order() -> None:
    random = Random(2)
    entries = [
        Entry(random.choice(NODES[:20]), random.randrange(10), random.random() < 0.6)
        for _ in range(300)
    ]
    one, other = Listing(), Listing()
    one.merge(0, entries)
    random.shuffle(entries)
    other.merge(5, entries)
    assert {line.node for line in one} == {line.node for line in other}
    assert (one.count, one.digest) == (other.count, other.digest)
    assert one.count == sum(line.is_in for line in one.lines.values())


def test_bare_subscriber_holds_for_an_hour_also_on_a_list_that_came_from_elsewhere() -> None:
    """It renews nothing, so it was struck off half a minute after any change of managers."""
    for is_copied in (False, True):
        listing = Listing()
        listing.merge(0, [Entry(NODE, 5, True, BARE), Entry(NODES[0], 5, True)])
        if is_copied:
            listing.renew_all(SECOND)
        assert listing.expire(2 * SERVICE_LEASE) == [NODES[0]]
        assert [line.node for line in listing] == [NODE]
        assert listing.expire(BARE_LEASE + SECOND) == [NODE]
        assert listing.expire(BARE_LEASE + 2 * SERVICE_LEASE) == [] and not listing.lines


# Order.


def test_items_come_out_in_order_and_none_waits_for_ever() -> None:
    sequencer = Sequencer[str]()
    assert sequencer.push(0, 1, "1") == ["1"]
    assert sequencer.push(0, 3, "3") == []
    assert sequencer.push(0, 2, "2") == ["2", "3"]
    assert sequencer.push(0, 5, "5") == []
    assert sequencer.advance(ORDER_PATIENCE - 1) == []
    assert sequencer.advance(ORDER_PATIENCE) == ["5"]
    assert sequencer.push(0, 4, "4") == []
    assert sequencer.late == 1


def test_first_number_of_one_who_was_there_before_is_the_lowest_that_comes_soon() -> None:
    sequencer = Sequencer[str]()
    assert sequencer.push(0, 12, "12") == []
    assert sequencer.push(0, 11, "11") == []
    assert sequencer.advance(sequencer.due_ns) == ["11", "12"]
    assert sequencer.push(0, 13, "13") == ["13"]


def test_nobody_waits_for_a_number_under_which_nothing_new_comes() -> None:
    """Two managers had sent a message, each with a number: subscribers waited 2 s for the other."""
    sequencer = Sequencer[str]()
    sequencer.begin(1)
    assert sequencer.push(0, 1, "1") == ["1"]
    assert sequencer.push(0, 3, "3") == []
    assert sequencer.pass_over(0, 2) == ["3"]
    assert sequencer.pass_over(0, 6, 2) == []
    assert sequencer.due_ns == NEVER  # Nothing waits.
    assert sequencer.push(0, 4, "4") == ["4"]
    assert sequencer.push(0, 8, "8") == []
    assert sequencer.push(0, 5, "5") == ["5", "8"]


def test_number_that_is_passed_over_hides_nothing_that_waits_or_has_been() -> None:
    sequencer = Sequencer[str]()
    sequencer.begin(1)
    assert sequencer.push(0, 2, "2") == []
    assert sequencer.pass_over(0, 2) == []
    assert sequencer.push(0, 1, "1") == ["1", "2"]
    assert sequencer.pass_over(0, 1) == []
    assert sequencer.pass_over(0, 4) == []
    assert sequencer.push(0, 5, "5") == []
    assert sequencer.advance(ORDER_PATIENCE) == ["5"]  # And not after a second patience.


def test_numbers_that_leap_because_a_manager_died_wait_a_while_for_its_last_ones() -> None:
    sequencer = Sequencer[str]()
    sequencer.begin(1)
    assert sequencer.push(0, 1, "1") == ["1"]
    assert sequencer.push(0, 4 + ORDER_LEAP, "new") == []
    assert sequencer.push(0, 2, "2") == ["2"]
    assert sequencer.push(0, 3, "3") == ["3"]
    assert sequencer.advance(ORDER_LEAP_PATIENCE - 1) == []
    assert sequencer.advance(ORDER_LEAP_PATIENCE) == ["new"]


def test_item_with_several_numbers_stands_for_all_of_them() -> None:
    sequencer = Sequencer[str]()
    assert sequencer.push(0, 1, "1 to 3", 3) == ["1 to 3"]
    assert sequencer.push(0, 6, "6") == []
    assert sequencer.push(0, 4, "4 and 5", 2) == ["4 and 5", "6"]
    assert sequencer.push(0, 2, "2 and 3", 2) == [] and sequencer.late == 2


# Trees.


@pytest.mark.parametrize(
    "count", [0, 1, 32, 33, 100, 500, 2000, 2592, 2593, 3000, 10_000, SUBSCRIBERS_MAX]
)
def test_everybody_is_reached_once_and_nobody_serves_too_many(count: int) -> None:
    nodes = [number.to_bytes(12, "big") for number in range(count)]
    reached: list[bytes] = []
    waiting = plan(nodes)
    assert len(waiting) <= DIRECT_FAN_OUT
    while waiting:
        node, below = waiting.pop()
        reached.append(node)
        frames = cut(below)
        assert max(map(len, frames)) <= TREE_NODES_PER_FRAME
        branches = [
            branch for frame in frames for branch in plan_below(frame, is_part=len(frames) > 1)
        ]
        assert len(branches) <= TREE_FAN_OUT
        waiting.extend(branches)
    assert sorted(reached) == nodes


# Placement and profiles.


@pytest.mark.parametrize("name", ["hrw", "weighted"])
def test_hashing_gives_every_node_about_the_same(name: str) -> None:
    measure = PLACEMENTS[name].measure
    numbers = [int.from_bytes(node_key(node), "big") for node in NODES[:10]]
    shares = [0] * 10
    for service in range(2000):
        key = int.from_bytes(node_key(service.to_bytes(4, "big")), "big")
        shares[min(range(10), key=lambda place: measure(key, numbers[place], 1))] += 1
    assert max(shares) < 1.3 * 200


def test_weight_of_three_takes_three_times_as_much() -> None:
    measure = find_placement("weighted").measure
    numbers = [int.from_bytes(node_key(node), "big") for node in NODES[:4]]
    weights, shares = [3, 1, 1, 1], [0] * 4
    for service in range(3000):
        key = int.from_bytes(node_key(service.to_bytes(4, "big")), "big")
        shares[min(range(4), key=lambda one: measure(key, numbers[one], weights[one]))] += 1
    assert 1350 < shares[0] < 1650


def test_unknown_names_are_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigurationError, match="xor, hrw, weighted"):
        find_placement("random")
    with pytest.raises(ConfigurationError, match="fast, seed"):
        find_profile("slow")


def test_profiles_are_dead_in_seconds_or_in_a_minute() -> None:
    assert FAST.detection_ns < 7 * 10**9
    assert SEED.probe_ns == 10 * 10**9
    assert SEED.silence_ns == 60 * 10**9
    assert SEED.probe_ns + 3 * SEED.ack_ns + SEED.suspicion_ns <= SEED.silence_ns


# From node to node.


class Sent:
    """One node that sends, and what it hears of it."""

    def __init__(self) -> None:
        self.seat = Seat(ORIGIN[0], 1, 7, Random(1), 0)
        self.suspected: list[bytes] = []
        self.lost: list[bytes] = []
        self.hops = Hops(
            self.seat,
            lambda now, node: self.suspected.append(node),
            lambda now, node, frame: self.lost.append(node),
        )
        self.ends: list[Answer | None] = []

    def post(self, now: int = 0) -> None:
        self._post(now, NOTICE, lambda hop: encode_notice(hop, Query(bytes(20))))

    def post_messages(self, *texts: bytes) -> None:
        """Send a frame of messages to a subscriber."""
        message = Message(INFO, bytes(20), join(list(texts)))
        info = Request(0, BATCH, 0, *ORIGIN, 1, 1, 0, 1, message, NOTHING)
        self._post(0, SERVICE, lambda hop: encode_request(info._replace(hop=hop)))

    def _post(self, now: int, kind: int, make: Callable[[int], bytes]) -> None:
        def done(then: int, node: bytes, answer: Answer | None) -> None:
            self.ends.append(answer)

        self.hops.post(now, [(NODE, ("10.0.0.1", 1))], kind, make, done)

    def take_out(self) -> int:
        count = len(self.seat.out)
        self.seat.out.clear()
        return count


def test_frame_is_repeated_until_it_is_acknowledged() -> None:
    sent = Sent()
    sent.post()
    sent.hops.advance(HOP_TIMEOUT)
    assert sent.take_out() == 2
    hop = sent.hops.hop
    sent.hops.take(HOP_TIMEOUT, NODE, [Answer(hop, TAKEN)])
    sent.hops.take(HOP_TIMEOUT, NODE, [Answer(hop, TAKEN)])
    assert sent.ends == [Answer(hop, TAKEN)]
    sent.hops.advance(1 << 60)
    assert sent.take_out() == 0


def answer_after(sent: Sent, now: int, trip_ns: int, *, times: int = 1) -> int:
    """Send a frame, answer it after a while, and return how often it went out."""
    sent.post(now)
    hop, end = sent.hops.hop, now + trip_ns
    while sent.hops.due_ns <= end:
        sent.hops.advance(sent.hops.due_ns)
    for _ in range(times):
        sent.hops.take(end, NODE, [Answer(hop, TAKEN)])
    return sent.take_out()


def test_who_answers_late_is_given_more_time_instead_of_everything_twice() -> None:
    """Twenty processes on two cores repeated three of four frames, and all of it had arrived."""
    sent, now, repeats = Sent(), 0, []
    for _ in range(20):
        now += SECOND
        trip_ns = 3 * HOP_TIMEOUT // 2
        went_out = answer_after(sent, now, trip_ns, times=2)  # Each copy is answered.
        repeats.append(went_out - 1)
    assert repeats[0] == 1
    assert not any(repeats[1:])


def test_who_is_quick_again_is_soon_asked_again_as_soon_as_before() -> None:
    sent, now = Sent(), 0
    for number in range(60):
        now += SECOND
        answer_after(sent, now, 3 * HOP_TIMEOUT if number < 10 else MS, times=2)
    assert answer_after(sent, now + SECOND, HOP_TIMEOUT) == 2


def test_answer_to_a_frame_that_was_lost_once_is_not_taken_for_a_late_one() -> None:
    sent, now = Sent(), 0
    for _ in range(20):
        now += SECOND
        assert answer_after(sent, now, HOP_TIMEOUT + MS) == 2  # Only the copy arrived.


def test_frames_that_were_acknowledged_wake_nobody_one_by_one() -> None:
    sent, wakes = Sent(), 0
    for number in range(100):
        now = number * MS
        while sent.hops.due_ns <= now:
            wakes += 1
            sent.hops.advance(now)
        sent.post(now)
        sent.hops.take(now, NODE, [Answer(sent.hops.hop, TAKEN)])
    assert wakes <= 1
    while sent.hops.due_ns < 1 << 60:
        sent.hops.advance(sent.hops.due_ns)
    assert not sent.hops.tracks
    assert sent.take_out() == 100


def test_node_that_never_answers_is_suspected_and_the_frame_given_up() -> None:
    sent = Sent()
    sent.post()
    for _ in range(20):
        sent.hops.advance(sent.hops.due_ns)
    assert sent.take_out() == HOP_TRIES
    assert sent.suspected == [NODE]
    assert sent.ends == [None]


def test_frames_for_one_that_takes_nothing_are_bounded_and_the_oldest_given_up() -> None:
    sent = Sent()
    for _ in range(HOP_WINDOW + HOP_BACKLOG + 3):
        sent.post()
    assert sent.take_out() == HOP_WINDOW
    assert sent.ends == [None] * 3
    sent.hops.forget(0, NODE)
    assert len(sent.ends) == HOP_WINDOW + HOP_BACKLOG + 3
    assert sent.hops.open == 0


def test_several_small_frames_make_way_for_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One did, so that more than was allowed could wait for a node."""
    monkeypatch.setattr(track, "HOP_BACKLOG_BYTES", 10_000)
    sent = Sent()
    for _ in range(HOP_WINDOW + 50):
        sent.post()
    sent.post_messages(bytes(9_000))
    waiting = sent.hops.tracks[NODE]
    assert waiting.waiting_bytes <= track.HOP_BACKLOG_BYTES
    assert len(sent.ends) == 51 - len(waiting.waiting) > 1


def test_batch_that_is_given_up_counts_with_all_its_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was counted, and told, as one message."""
    monkeypatch.setattr(track, "HOP_BACKLOG", 1)
    sent = Sent()
    for _ in range(HOP_WINDOW + 3):
        sent.post_messages(b"one", b"two", b"three")
    assert sent.seat.counters["given_up_slow"] == 6
    assert sent.seat.events == [GivenUp(NODE, 3), GivenUp(NODE, 3)]


@pytest.mark.parametrize("count", [1, 2, 3, 10, 50])
def test_shares_by_xor_are_what_the_closest_node_gets(count: int) -> None:
    random = Random(count)
    keys = [random.getrandbits(160) for _ in range(count)]
    parts = shares(find_placement("xor"), keys, [1] * count)
    assert sum(parts) == pytest.approx(1)
    taken = [0] * count
    for _ in range(4000):
        service = random.getrandbits(160)
        taken[min(range(count), key=lambda place: service ^ keys[place])] += 1
    for part, found in zip(parts, taken, strict=True):
        assert found / 4000 == pytest.approx(part, abs=0.04)


def test_largest_share_of_a_hundred_nodes_is_about_three_and_a_half_times_the_mean() -> None:
    random, placement = Random(1), find_placement("xor")
    largest = [
        max(shares(placement, [random.getrandbits(160) for _ in range(100)], [1] * 100))
        for _ in range(100)
    ]
    assert 3.3 < 100 * sum(largest) / len(largest) < 3.9


def test_shares_by_weight_are_those_of_the_weights() -> None:
    assert shares(find_placement("weighted"), [1, 2], [3, 1]) == [0.75, 0.25]
    assert shares(find_placement("hrw"), [1, 2], [3, 1]) == [0.5, 0.5]


def test_a_newcomer_asks_the_closest_of_those_who_are_there_now() -> None:
    seat = Seat(bytes(12), 1, 7, Random(1), 0)
    view = View(seat, XorPlacement(), 2 * SECOND, 1)
    keys = [node_key(bytes([number]) * 12) for number in range(20, 40)]
    assert {view.closest_to_ask(key) for key in keys} == {seat.node}
    here: set[bytes] = set()
    for number, state in ((1, State.ALIVE), (2, State.ALIVE), (3, State.ALIVE), (1, State.DEAD)):
        node = bytes([number]) * 12
        here ^= {node}
        view.apply(0, Record(node, "10.0.0.1", 1, 1, 1, state), ("10.0.0.1", 1))
        for key in keys:
            closest = min(here, key=lambda one: distance(key, node_key(one)))
            assert view.closest_to_ask(key) == closest
    seat.now = 2 * SECOND
    assert view.closest_to_ask(node_key(seat.node)) == seat.node


# Of whom it is not known whether they live.


class Doubting:
    """A list that came from elsewhere, and what a node that has just come knows of it."""

    def __init__(self) -> None:
        self.view = View(Seat(ORIGIN[0], 1, 7, Random(1), 0), XorPlacement(), 2 * SECOND, 1)
        self.doubts = Doubts(self.view)
        self.listing = Listing()
        self.listing.subscribe(0, NODE, 100, 0, ("10.0.0.1", 1), SERVICE_LEASE)

    def look_through(self, *, are_we_on_it: bool = True) -> None:
        self.doubts.look_through(0, self.listing, are_we_on_it=are_we_on_it)

    def subscribers(self, now: int) -> list[bytes]:
        self.doubts.ended(self.listing.expire(now))
        return [line.node for line in self.listing]

    def tell(self, state: State) -> None:
        self.view.apply(0, Record(NODE, "10.0.0.1", 1, 1, 1, int(state)), ("10.0.0.1", 1))


def test_stranger_on_a_list_that_is_never_heard_is_off_it_long_before_its_lease_ends() -> None:
    """It had died before this node came, to whom nobody told of it: it stayed for 20 s."""
    town = Doubting()
    town.look_through()
    assert town.doubts.to_ask == {NODE: ("10.0.0.1", 1)}
    assert town.subscribers(SECOND) == [NODE]
    assert not town.subscribers(5 * SECOND)
    assert not town.doubts.strangers


def test_stranger_on_a_list_that_is_heard_has_a_whole_lease() -> None:
    town = Doubting()
    town.look_through()
    town.doubts.heard(SECOND, NODE, [town.listing])
    assert not town.doubts.strangers
    assert town.subscribers(SERVICE_LEASE) == [NODE]
    assert not town.subscribers(SECOND + SERVICE_LEASE)


def test_member_on_a_list_is_not_doubted_and_a_dead_one_is_told() -> None:
    town = Doubting()
    town.tell(State.ALIVE)
    town.look_through()
    assert (town.doubts.to_ask, town.doubts.strangers) == ({}, set())
    town.tell(State.DEAD)
    town.look_through()
    assert town.doubts.to_ask == {NODE: ("10.0.0.1", 1)}
    assert not town.subscribers(0)


def test_manager_takes_the_line_of_its_own_earlier_life_off_a_list_that_it_was_given() -> None:
    """It was on its own list for a lease, though it did not subscribe since it was restarted."""
    town = Doubting()
    town.tell(State.ALIVE)
    town.listing.subscribe(0, ORIGIN[0], 100, 0, ("10.0.0.2", 1), SERVICE_LEASE)
    town.look_through()
    assert town.subscribers(0) == [NODE, ORIGIN[0]]
    town.look_through(are_we_on_it=False)
    assert town.subscribers(0) == [NODE]
