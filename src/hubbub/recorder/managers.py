"""Who manages the services of the bus, whether we subscribe to them or not.

Of a service that it subscribes to a node hears each manager as it comes (`ManagerChanged`). Of all
others it asks their managers, once a look, who also tell what they managed until lately; so only an
epoch that ended with the death of its manager, before a look, is missed. What is new is recorded as
the event that a subscriber would have had.
"""

from collections.abc import Iterable, Iterator

from hubbub.errors import HubbubError
from hubbub.events import Event, ManagerChanged
from hubbub.limits import RECORDER_TOPICS_KEPT
from hubbub.node import Node
from hubbub.service import CHANNEL
from hubbub.service_statistics import FoundService

_Term = tuple[str, str, int]  # The service, the id of its manager, and the epoch.


class Managers:
    """The managers that a recording knows of."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._told: dict[_Term, None] = {}

    def note(self, event: Event) -> None:
        """Hear of one that is recorded already."""
        if isinstance(event, ManagerChanged):
            self._is_new((event.service, event.manager.id.hex(), event.epoch))

    def look(self, *, is_last: bool) -> Iterator[ManagerChanged]:
        """Return those who are new; asks again for the next look, unless this is the last."""
        if not self._node.is_sharing_services:
            return
        try:
            services = self._node.services
            found: Iterable[FoundService]
            found = services.find_terms() if is_last else services.take_terms()
        except HubbubError:  # The node was closed before us.
            return
        for one in found:
            name = one.name or one.key  # Who speaks the first version tells no name.
            if self._is_new((name, one.manager, one.epoch)):
                manager = services.source_of(bytes.fromhex(one.manager))
                yield ManagerChanged(CHANNEL, name, manager, one.epoch)

    def _is_new(self, term: _Term) -> bool:
        if term in self._told:
            return False
        self._told[term] = None
        if len(self._told) > RECORDER_TOPICS_KEPT:
            del self._told[next(iter(self._told))]
        return True
