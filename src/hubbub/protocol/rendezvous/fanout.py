"""Who sends what to whom: straight to a few, by a tree to many.

The manager knows the whole list, so it makes the tree: each frame names those for whom the next
node is to pass it on. Nobody has to be told beforehand, and who does not answer is left out by the
one above it, which passes the frame on to the rest itself.
"""

from hubbub.limits import DIRECT_FAN_OUT, TREE_FAN_OUT, TREE_NODES_PER_FRAME

Branch = tuple[bytes, list[bytes]]  # Who gets it next, and for whom it passes it on.


def plan(nodes: list[bytes]) -> list[Branch]:
    """Part nodes into branches; each has one to send to, and those below it."""
    if len(nodes) <= DIRECT_FAN_OUT:
        return [(node, []) for node in nodes]
    count = max(TREE_FAN_OUT, -(-len(nodes) // (TREE_NODES_PER_FRAME + 1)))
    return [(nodes[at], nodes[at + count :: count]) for at in range(count)]


def repair(branch: Branch) -> list[Branch]:
    """Part those below one who does not answer anew."""
    return plan_below(branch[1])


def plan_below(nodes: list[bytes]) -> list[Branch]:
    """Part nodes as one who passes a frame on does: a few at a time, down to single ones."""
    if len(nodes) <= TREE_FAN_OUT:
        return [(node, []) for node in nodes]
    return [(nodes[at], nodes[at + TREE_FAN_OUT :: TREE_FAN_OUT]) for at in range(TREE_FAN_OUT)]
