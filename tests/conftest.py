"""What every test can rely on."""

import gc
import signal

from hypothesis import settings

# How long an example takes says more about the machine than about the code.
settings.register_profile("hubbub", deadline=None)
settings.load_profile("hubbub")

# Who starts the tests in the background of a script has them ignore Ctrl-C, and with them all
# processes that they start; some of these tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Let no collection look at thousands of tests again: that took a seventh of the time."""
    gc.freeze()
