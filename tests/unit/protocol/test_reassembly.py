"""Large messages from pieces: complete only when every piece came once, within a budget."""

from random import Random

from hubbub.limits import REASSEMBLIES_PER_PEER_MAX
from hubbub.protocol.reassembly import Budget, Reassembly, Share
from hubbub.wire.batch import Segment
from hubbub.wire.train import Piece

STRIDE = 300
MESSAGE = Random(1).randbytes(1000)


def piece(number: int, *, sequence: int = 1, message: bytes = MESSAGE) -> Segment:
    offset = number * STRIDE
    data = message[offset : offset + STRIDE]
    return Segment(16, sequence, 0, len(message), offset, STRIDE, data)


def make(max_bytes: int = 1 << 20) -> Reassembly:
    return Reassembly(Share(Budget(max_bytes)))


def test_message_is_whole_after_its_last_piece_in_any_order() -> None:
    reassembly = make()
    assert [reassembly.add(frame, piece(number)) for frame, number in enumerate([3, 0, 2])] == (
        [None] * 3
    )
    assert reassembly.add(9, piece(1)) == MESSAGE
    assert not reassembly.partials and reassembly.share.claimed_bytes == 0


def test_duplicate_pieces_never_complete_a_message() -> None:
    reassembly = make()
    for frame in range(20):
        assert reassembly.add(frame, piece(frame % 3)) is None
    assert reassembly.add(99, piece(3)) == MESSAGE


def test_piece_that_contradicts_the_others_is_refused() -> None:
    reassembly = make()
    reassembly.add(1, piece(0))
    for lie in (
        piece(1)._replace(total=1200),
        Segment(16, 1, 0, 1000, 0, 500, b"x" * 500),
    ):
        assert reassembly.add(2, lie) is None
    for number in (1, 2):
        assert reassembly.add(3, piece(number)) is None
    assert reassembly.add(4, piece(3)) == MESSAGE


def test_messages_of_one_topic_do_not_mix() -> None:
    other = bytes(1000)
    reassembly = make()
    for number in range(3):
        reassembly.add(1, piece(number))
        reassembly.add(2, piece(number, sequence=2, message=other))
    assert reassembly.add(3, piece(3, sequence=2, message=other)) == other
    assert reassembly.add(4, piece(3)) == MESSAGE


def test_message_beyond_the_budget_is_refused_and_claims_nothing() -> None:
    reassembly = make(max_bytes=1500)
    reassembly.add(1, piece(0))
    assert reassembly.add(2, piece(0, sequence=2)) is None
    assert (reassembly.refused, reassembly.share.claimed_bytes) == (1, 1000)
    reassembly.clear()
    assert reassembly.share.claimed_bytes == 0
    assert reassembly.has_room(piece(0, sequence=2))


def test_room_is_asked_for_before_a_piece_is_taken() -> None:
    reassembly = make(max_bytes=1500)
    reassembly.add(1, piece(0))
    assert reassembly.has_room(piece(1))
    assert not reassembly.has_room(piece(0, sequence=2))
    # What never fits must not wait for room that will never come.
    assert reassembly.has_room(Segment(16, 3, 0, 5000, 0, STRIDE, bytes(STRIDE)))


def test_number_of_incomplete_messages_is_bounded() -> None:
    reassembly = make(max_bytes=1 << 40)
    for sequence in range(REASSEMBLIES_PER_PEER_MAX + 5):
        reassembly.add(1, piece(0, sequence=sequence))
    assert len(reassembly.partials) == REASSEMBLIES_PER_PEER_MAX


def test_message_whose_last_piece_is_settled_will_stay_incomplete() -> None:
    reassembly = make()
    reassembly.add(5, piece(0))
    reassembly.add(8, piece(3))
    assert reassembly.drop_settled(8) == []
    assert reassembly.drop_settled(9) == [(16, 1)]
    assert reassembly.share.claimed_bytes == 0


def test_message_behind_which_a_frame_was_given_up_gives_its_memory_back() -> None:
    """Its last piece had never come, so it was kept for ever."""
    reassembly = make()
    reassembly.add(5, piece(0))
    assert reassembly.drop_settled(9, given_up=4) == []
    assert reassembly.drop_settled(9, given_up=8) == [(16, 1)]
    assert reassembly.share.claimed_bytes == 0


def test_peer_has_half_of_the_memory_at_most_unless_one_message_is_larger() -> None:
    budget = Budget(3000)
    busy, other = Reassembly(Share(budget)), Reassembly(Share(budget))
    busy.add(1, piece(0))
    assert not busy.has_room(piece(0, sequence=2))
    assert other.has_room(piece(0, message=bytes(2000)))
    other.add(1, piece(0, message=bytes(2000)))
    assert budget.claimed_bytes == 3000 and not other.has_room(piece(0, sequence=2))


def test_large_best_effort_messages_that_lost_a_piece_do_not_fill_the_reassembly() -> None:
    reassembly = make()
    for sequence in range(1, 10):
        reassembly.drop_older(16, sequence)
        reassembly.add(sequence, piece(0, sequence=sequence))
    assert list(reassembly.partials) == [(16, 9)]


def beginning(number: int, total: int = 3000) -> Piece:
    return Piece(5, 16, 1, total, number * STRIDE, STRIDE)


def test_train_has_room_for_new_pieces_but_never_for_the_last() -> None:
    reassembly = make()
    message = bytes(3000)  # Ten pieces.
    reassembly.add(1, piece(0, message=message))
    [partial] = reassembly.partials.values()
    assert partial.room_from(beginning(1), STRIDE) == 8
    assert partial.room_from(beginning(9), STRIDE) == 0
    assert partial.room_from(beginning(0), STRIDE) == 0, "it is there already"
    reassembly.add(2, piece(4, message=message))
    assert partial.room_from(beginning(1), STRIDE) == 3
    assert partial.room_from(beginning(5), STRIDE) == 4
    assert partial.room_from(beginning(1), STRIDE - 1) == 0
    assert partial.room_from(beginning(1, total=3001), STRIDE) == 0
    assert partial.room_from(beginning(1)._replace(offset=STRIDE + 1), STRIDE) == 0
    assert partial.room_from(beginning(1000), STRIDE) == 0


def test_train_leaves_a_piece_to_come_also_when_the_last_is_there() -> None:
    reassembly = make()
    message = bytes(3000)
    for number in (0, 9):
        reassembly.add(number, piece(number, message=message))
    [partial] = reassembly.partials.values()
    assert partial.room_from(beginning(1), STRIDE) == 7
    partial.add_train(STRIDE, [bytes(STRIDE)] * 7, 8)
    assert partial.room_from(beginning(8), STRIDE) == 0
    assert reassembly.add(8, piece(8, message=message)) == bytes(3000)


def test_pieces_of_a_train_are_put_into_their_places() -> None:
    reassembly = make()
    reassembly.add(1, piece(0))
    [partial] = reassembly.partials.values()
    partial.add_train(STRIDE, [piece(1).data, piece(2).data], 3)
    assert (partial.remaining, partial.newest_frame) == (1, 3)
    assert reassembly.add(2, piece(1)) is None, "it is there already"
    assert reassembly.add(4, piece(3)) == MESSAGE
