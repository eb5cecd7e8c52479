"""Which subject a type of samples is, here and elsewhere.

A type is a number on the wire, and programs that never heard of each other may call a subject by
different ones: one has registered a number, the other made one from the name. Who has a derived
number takes the registered one as soon as it hears of it; who has the registered one says so again
when it hears of a derived one. Two registered numbers for one subject cannot be mended here: that
is reported. So is one number for two subjects, and nobody is served what it did not ask for.
"""

from collections.abc import Callable
from typing import Any, Final

from hubbub.events import DataTypeMismatch
from hubbub.protocol.timetrigger.office import Office
from hubbub.wire.timed import Interest, Offer, is_derived

_NOBODY: Final[tuple[Any, ...]] = ()
Rename = Callable[[int, Any, int], None]
Remind = Callable[[int, Any], None]


class Lexicon:
    """The subjects of the components of a node."""

    def __init__(self, office: Office, rename: Rename, remind: Remind) -> None:
        self._office = office
        self._rename = rename
        self._remind = remind
        self._components: dict[str, tuple[Any, ...]] = {}  # By subject.

    def add(self, now: int, component: Any) -> None:
        """Look after the subject of a component that was added."""
        all_of_it = (*self._components.get(component.subject, _NOBODY), component)
        self._components[component.subject] = all_of_it
        registered = next((one.type for one in all_of_it if not is_derived(one.type)), 0)
        for one in all_of_it if registered else ():
            if is_derived(one.type):
                self._rename(now, one, registered)

    def remove(self, component: Any) -> None:
        """Look after it no more."""
        others = [one for one in self._components[component.subject] if one is not component]
        if others:
            self._components[component.subject] = tuple(others)
        else:
            del self._components[component.subject]

    def knows(self, subject: str) -> bool:
        """Tell whether a component is about this subject."""
        return subject in self._components

    def compare(self, now: int, frame: Interest | Offer) -> None:
        """Hear under which number others have a subject of ours."""
        for component in self._components.get(frame.subject, _NOBODY):
            if frame.type in (component.type, 0):
                continue
            if is_derived(component.type):
                if not is_derived(frame.type):
                    self._rename(now, component, frame.type)
            elif is_derived(frame.type):
                self._remind(now, component)
            else:
                self.mismatch(now, frame, component)

    def mismatch(self, now: int, frame: Interest | Offer, component: Any) -> None:
        """Count and report that others mean something else by a number, or by a subject."""
        office = self._office
        office.tally.mismatched += 1
        if office.reports.is_due(now, ("mismatch", frame.node, frame.type, component.port)):
            office.endpoint.events.append(
                DataTypeMismatch(
                    office.endpoint.channel, office.source_of(frame.node), component.subject,
                    component.type, frame.subject, frame.type,
                )
            )  # fmt: skip
