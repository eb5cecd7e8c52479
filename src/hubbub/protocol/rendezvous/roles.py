"""What a node is to a service, and what may happen to that.

The table is all there is: an event that is not in the row of a role changes nothing. The diagram in
docs/protocol.md is drawn from it, and a test walks every pair.
"""

from enum import Enum
from typing import Final


class Role(Enum):
    """What this node is to a service."""

    COPY = "copy"  # Knows its list, in case that the manager dies.
    PULLING = "pulling"  # Should be its manager, and asks others for the list.
    MANAGING = "managing"
    HANDING = "handing"  # Still manages it, and sends the list to one who is closer.
    FORWARDING = "forwarding"  # Was its manager, and passes on what still comes.
    ABSENT = "absent"  # Knows nothing of it.


class Happening(Enum):
    """What can happen to a service here."""

    COPIED = "copied"  # A manager has sent its list, or a change of it.
    ASKED = "asked"  # A request has come, and nobody is closer.
    LISTED = "listed"  # The whole list has come, for us to manage.
    FOUND_NOBODY = "found nobody"  # Nobody who was asked has a list for us, and somebody wants one.
    GIVEN_UP = "given up"  # Nobody subscribes, nobody wants to; or another is in charge.
    CLOSER_CAME = "closer came"
    CLOSER_WENT = "closer went"  # We are the closest; who was closer is gone.
    DOUBTED = "doubted"  # So are all who had a newer list than ours.
    HANDED = "handed"  # The new manager has said that it has the list.
    REFUSED = "refused"  # It did not in time.
    EXPIRED = "expired"  # A copy that is not renewed, or the grace of a forwarder.


_R, _H = Role, Happening

TRANSITIONS: Final[dict[tuple[Role, Happening], Role]] = {
    (_R.ABSENT, _H.COPIED): _R.COPY,
    (_R.ABSENT, _H.ASKED): _R.PULLING,
    (_R.ABSENT, _H.LISTED): _R.MANAGING,
    (_R.PULLING, _H.FOUND_NOBODY): _R.MANAGING,
    (_R.PULLING, _H.LISTED): _R.MANAGING,
    (_R.PULLING, _H.CLOSER_CAME): _R.COPY,
    (_R.PULLING, _H.GIVEN_UP): _R.ABSENT,
    (_R.COPY, _H.ASKED): _R.MANAGING,
    (_R.COPY, _H.CLOSER_WENT): _R.MANAGING,
    (_R.COPY, _H.DOUBTED): _R.PULLING,
    (_R.COPY, _H.LISTED): _R.MANAGING,
    (_R.COPY, _H.EXPIRED): _R.ABSENT,
    (_R.MANAGING, _H.CLOSER_CAME): _R.HANDING,
    (_R.MANAGING, _H.GIVEN_UP): _R.ABSENT,
    (_R.MANAGING, _H.DOUBTED): _R.PULLING,
    (_R.HANDING, _H.HANDED): _R.FORWARDING,
    (_R.HANDING, _H.REFUSED): _R.MANAGING,
    (_R.HANDING, _H.CLOSER_WENT): _R.MANAGING,
    (_R.HANDING, _H.GIVEN_UP): _R.ABSENT,
    (_R.HANDING, _H.DOUBTED): _R.PULLING,
    (_R.FORWARDING, _H.ASKED): _R.MANAGING,
    (_R.FORWARDING, _H.CLOSER_WENT): _R.MANAGING,
    (_R.FORWARDING, _H.DOUBTED): _R.PULLING,
    (_R.FORWARDING, _H.LISTED): _R.MANAGING,
    (_R.FORWARDING, _H.EXPIRED): _R.COPY,
}


def follow(role: Role, happening: Happening) -> Role:
    """Return what a role becomes."""
    return TRANSITIONS.get((role, happening), role)
