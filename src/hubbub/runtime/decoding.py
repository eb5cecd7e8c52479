"""Turn the payloads of a typed subscription into values when a reader takes them.

It happens in the reader's thread and outside the lock of the queue, because decoding can run code
of the application (`__post_init__`). A payload that does not decode is skipped and noted.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from hubbub.errors import ConfigurationError
from hubbub.message import Message
from hubbub.runtime.inbox import Inbox
from hubbub.runtime.tally import Tally


def _decoder_of(wanted: Any) -> Callable[[Any], Any]:
    try:
        return msgspec.msgpack.Decoder(wanted).decode
    except TypeError as error:
        raise ConfigurationError(f"type={wanted!r} cannot be decoded: {error}") from None


class DecodingInbox:
    """Take decoded messages from an inbox."""

    def __init__(self, inbox: Inbox, wanted: Any, on_reject: Callable[[], None]) -> None:
        self.rejects = Tally()
        self.error = ""
        self._inbox = inbox
        self._decode = _decoder_of(wanted)
        self._on_reject = on_reject

    def take(self) -> Message | None:
        """Return the next message that decodes, or None if there is none."""
        while (message := self._inbox.take()) is not None:
            try:
                value = self._decode(message.payload)
            except Exception as error:
                self._reject(message, error)
            else:
                return replace(message, payload=value)
        return None

    def _reject(self, message: Message, error: Exception) -> None:
        self.error = self.error or f"{message.subject} from {message.source}: {error}"
        self.rejects.add(message.subject, message.source, message.sequence, 1)
        self._on_reject()
