"""What the first version can say, as it said it: five messages, each alone in a datagram.

A node that speaks it sends the messages of its services so, and nobody acknowledges them: what is
lost is lost until the next renewal. What the first version has no words for goes in the envelope
as ever: an empty payload, a request that somebody else made, a value that is kept, a subject,
patterns, credentials, a tree, a list of several parts.
"""

from hubbub.wire.services import (
    BATCH,
    CHANGE_SERVICE_MANAGER,
    INFO,
    LEAVING,
    PUBLISH,
    SUBSCRIBE_SERVICE,
    Extra,
    Message,
    Request,
    join_ids,
    split_ids,
)

_NO_WORDS = ~(BATCH | LEAVING)
_NOTHING = Extra()


def say(request: Request, own: bytes) -> list[Message] | None:
    """Return a request of ours as the first version would send it; None: it could not."""
    type, extra = request.message.type, request.extra
    if request.flags & _NO_WORDS:
        return None
    if type == CHANGE_SERVICE_MANAGER:
        return _say_change(request)
    if type != INFO and (request.hops or request.origin != own):
        return None  # Who sends a message is who it is from.
    if type in (PUBLISH, INFO):
        is_plain = extra == _NOTHING and all(request.payloads)
        messages = [request.message._replace(rest=payload) for payload in request.payloads]
        return messages if is_plain else None
    assert type <= SUBSCRIBE_SERVICE + 1
    return None if extra.credentials or extra.patterns else [request.message]


def _say_change(request: Request) -> list[Message] | None:
    entries = request.extra.entries
    if request.extra.parts > 1 or any(one.flags or one.patterns for one in entries):
        return None
    manager, _ = split_ids(request.message.rest)
    ids = join_ids(manager, [one.node for one in entries if one.is_in])
    return [request.message._replace(rest=ids)]
