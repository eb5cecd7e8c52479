"""A node that records: takes what flows over the bus, and what the bus itself does, into a journal.

Another plays a recording again. What they need of the bus is the public API; what lies on the disk
is the business of `store`.
"""

from hubbub.recorder.player import Player
from hubbub.recorder.recorder import Recorder, RecorderStatistics

__all__ = ["Player", "Recorder", "RecorderStatistics"]
