"""Everything Hubbub raises on purpose.

    HubbubError
    |-- ConfigurationError    an option has a value that cannot work
    |-- SubjectError          a subject or pattern is malformed
    |-- PayloadError          a payload cannot be sent, or does not fit its type
    |-- ClosedError           the node, publisher, subscription or channel was closed before
    |-- Backpressure          the receivers did not take the message within `send_timeout`
    |-- LinkError             the operating system refused an interface, a group or a socket
    |-- StoreError            a recording cannot be opened, read or written
    |   `-- DataLoss          rows of it that were asked for are not there any more
    `-- MissingExtra          a command needs a package that is not installed

What a peer sends never raises: it is counted by reason (`drops` in `statistics()`). Our own
invariants are asserted. So an exception of this tree always means that the caller can do something
about it, and its text states the value, the bound and what to do.
"""


class HubbubError(Exception):
    """The root of everything raised on purpose."""


class ConfigurationError(HubbubError, ValueError):
    """An option has a value that cannot work."""


class SubjectError(HubbubError, ValueError):
    """A subject or pattern is malformed."""


class PayloadError(HubbubError, ValueError):
    """A payload is too large, of the wrong kind, or does not fit its declared type."""


class ClosedError(HubbubError):
    """The object was closed before the call."""


class Backpressure(HubbubError, TimeoutError):
    """The receivers did not make room for the message in time; it was not sent."""


class LinkError(HubbubError, OSError):
    """The operating system refused an interface, a group or a socket."""


class StoreError(HubbubError):
    """A recording cannot be opened, read or written."""


class DataLoss(StoreError):
    """Rows that were asked for are not in the store; the text names them."""


class MissingExtra(HubbubError, ImportError):
    """A feature needs a package that is not installed; the text has the pip command."""
