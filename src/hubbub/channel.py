"""A channel: a multicast group that nodes share. Distributor calls it a connection."""

from dataclasses import dataclass, field

from hubbub.errors import ConfigurationError
from hubbub.given import is_whole
from hubbub.links.opening import check_options
from hubbub.protocol.settings import Settings
from hubbub.subjects import check_pattern

DEFAULT_GROUP = "239.255.72.66"
DEFAULT_PORT = 7266


@dataclass(frozen=True, slots=True)
class Channel:
    """A multicast group and port, which subjects are published there, and how.

    `subjects` is the pattern of what goes to this channel when a publisher names none. What is None
    is the node's.

        hubbub.open(channels=[Channel("239.255.72.66", 7266), Channel("239.255.72.67", 7267,
        "/video/...")])
    """

    group: str = DEFAULT_GROUP
    port: int = DEFAULT_PORT
    subjects: str = "/..."
    interface: str | None = None
    ttl: int = 1
    settings: Settings | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Refuse what cannot work, and write the group as all write it."""
        check_pattern(self.subjects)
        for name in ("port", "ttl"):
            value = getattr(self, name)
            if not is_whole(value):
                raise ConfigurationError(f"{name}={value!r} is not a whole number")
        if not isinstance(self.interface, str | None):
            raise ConfigurationError(f"interface={self.interface!r}: give a name or an address")
        if not isinstance(self.settings, Settings | None):
            raise ConfigurationError(f"settings={self.settings!r}: give hubbub.Settings(...)")
        object.__setattr__(self, "group", check_options(self.group, self.port, self.ttl, 0))

    @property
    def name(self) -> str:
        """Return the name that events and statistics use."""
        return f"{self.group}:{self.port}"

    def __str__(self) -> str:
        return self.name
