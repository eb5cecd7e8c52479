"""How quickly members notice each other: the figures of the first version, and ours."""

from dataclasses import dataclass
from typing import Final

from hubbub.errors import ConfigurationError
from hubbub.limits import MS, SECOND


@dataclass(frozen=True, slots=True)
class Profile:
    """The times of a membership; each bound is from the one before."""

    name: str
    probe_ns: int  # Between two rounds of pings,
    probes: int  # each to so many members; 0: to all.
    ack_ns: int  # Until others are asked to ping it, too, and as long again until it is suspected.
    indirect: int  # So many others.
    suspicion_ns: int  # From then until it counts as dead, at least.
    gossip_ns: int  # Between two rounds of news, while there are any.
    stable_ns: int  # So long a newcomer must have been there before it is handed services.
    silence_ns: int = 0  # Whom a member has heard so lately, it does not say to be dead.

    @property
    def detection_ns(self) -> int:
        """Return how long a crash goes unnoticed at most, with some rounds of bad luck."""
        suspected_ns = 5 * self.probe_ns + 3 * self.ack_ns
        return max(suspected_ns + self.suspicion_ns, self.silence_ns) + 3 * self.gossip_ns


FAST: Final = Profile("fast", 500 * MS, 1, 200 * MS, 3, 1500 * MS, 100 * MS, 2 * SECOND)
# A list that is refreshed every 10 s, and a node that is dead a minute after the last sign of life
# that anybody had who looks at it: 50 to 60 s after it stopped, and others hear of it in a second
# or two. Who suspects it sooner, because a message is not acknowledged, only looks at it sooner.
SEED: Final = Profile(
    "seed", 10 * SECOND, 0, 2 * SECOND, 3, 10 * SECOND, 1 * SECOND, 20 * SECOND, 60 * SECOND
)
PROFILES: Final = {profile.name: profile for profile in (FAST, SEED)}


def find_profile(name: str) -> Profile:
    """Return the profile of this name."""
    profile = PROFILES.get(name)
    if profile is None:
        raise ConfigurationError(f"membership={name!r}: choose one of {', '.join(PROFILES)}")
    return profile
