"""What every test can rely on."""

import signal

# Who starts the tests in the background of a script has them ignore Ctrl-C, and with them all
# processes that they start; some of these tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
