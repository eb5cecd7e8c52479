"""Who sends what to whom: straight to a few, by a tree to many.

The manager knows the whole list, so it makes the tree: each frame names those for whom the next
node is to pass it on. Nobody has to be told beforehand, and who does not answer is left out by the
one above it, which leaves the rest to the next of them.

A frame names a bounded number of nodes. Of more subscribers than a level of such frames can name,
each head has several frames: it leaves each, whole, to the first node that it names, which parts it
as ever. So however many subscribe, nobody sends a message to more than a few nodes.
"""

from typing import Final

from hubbub.limits import DIRECT_FAN_OUT, TREE_FAN_OUT, TREE_NODES_PER_FRAME

Branch = tuple[bytes, list[bytes]]  # Who gets it next, and for whom it passes it on.

_BRANCH_MAX: Final = 1 + TREE_FAN_OUT * TREE_NODES_PER_FRAME  # Nodes, in as many frames.


def plan(nodes: list[bytes]) -> list[Branch]:
    """Part nodes into branches; each has one to send to, and those below it."""
    if len(nodes) <= DIRECT_FAN_OUT:
        return [(node, []) for node in nodes]
    by_one_frame = -(-len(nodes) // (TREE_NODES_PER_FRAME + 1))
    by_several = -(-len(nodes) // _BRANCH_MAX)
    return _part(nodes, max(TREE_FAN_OUT, min(by_one_frame, DIRECT_FAN_OUT), by_several))


def plan_below(nodes: list[bytes], *, is_part: bool = False) -> list[Branch]:
    """Part nodes as one who passes a frame on does: a few at a time, down to single ones.

    If the frame is one of several, all of it is left to one node.
    """
    if is_part and nodes:
        return [(nodes[0], nodes[1:])]
    return _part(nodes, min(TREE_FAN_OUT, len(nodes)))


def _part(nodes: list[bytes], count: int) -> list[Branch]:
    return [(nodes[at], nodes[at + count :: count]) for at in range(count)]


def cut(below: list[bytes]) -> list[list[bytes]]:
    """Cut those below a node into what one frame each names."""
    count = max(1, -(-len(below) // TREE_NODES_PER_FRAME))
    return [below[at::count] for at in range(count)]
