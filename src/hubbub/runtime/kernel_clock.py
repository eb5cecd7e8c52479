"""Whether the operating system knows its clock to be synchronised, by NTP, PTP or anything else."""

import ctypes
import sys
from typing import Final

_BYTES: Final = 256  # More than struct timex has anywhere.
_TIME_ERROR: Final = 5


def is_synchronised() -> bool:
    """Ask the kernel (adjtimex); where there is no such call nobody knows, so it is not."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_BYTES))
    except (OSError, AttributeError):
        return False
    return bool(0 <= state < _TIME_ERROR)
