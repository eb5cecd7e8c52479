"""A node that records: takes what flows over the bus, and what the bus itself does, into a journal.

What it needs of the bus is the public API; what lies on the disk is the business of `store`.
"""

from hubbub.recorder.recorder import Recorder, RecorderStatistics

__all__ = ["Recorder", "RecorderStatistics"]
