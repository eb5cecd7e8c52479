"""Whether the operating system knows its clock to be synchronised, by NTP, PTP or anything else."""

import ctypes
import sys
from typing import Final

_BYTES: Final = 256  # More than struct timex has anywhere.
_TIME_ERROR: Final = 5


def is_synchronised() -> bool:
    """Tell whether it is, for certain."""
    return ask_kernel() is True


def ask_kernel() -> bool | None:
    """Ask with adjtimex(2), changing nothing; None: there is no such call, and nobody knows."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else bool(state < _TIME_ERROR)
