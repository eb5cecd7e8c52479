"""TLS of a connection by TCP: both ends show a certificate of an authority that the other trusts.

Bytes in, bytes out, and no socket: what is sealed goes out in the order in which it was sealed,
whatever the socket takes of it at a time, so all else is as with any pipe. Only TLS 1.3: there a
write never has to wait for a read.
"""

import ssl
from itertools import chain
from threading import Lock
from typing import Any, Final, NamedTuple, NoReturn

from hubbub.errors import ConfigurationError, LinkError

_READ_BYTES: Final = 1 << 18

# What the library calls it, and what a person can do something about.
_REASONS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not valid",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate",
    "WRONG_VERSION_NUMBER": "it speaks without TLS, or an old one",
    "HTTP_REQUEST": "it speaks HTTP",
    "UNSUPPORTED_PROTOCOL": "it speaks an older TLS than 1.3",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants a certificate of ours",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the authority of our certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks an older TLS than 1.3",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that our certificate has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it says that our certificate is not for our name",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it found nothing in common with us",
}


class TlsFiles(NamedTuple):
    """Where the authority, our certificate and its key are, as PEM."""

    ca: str
    certificate: str
    key: str


class TlsSession:
    """One connection: bytes of the socket to bytes of the other end, and back.

    `take` and `seal` may run beside each other; the library allows no two calls at a time.
    """

    def __init__(self, context: ssl.SSLContext, host: str | None) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ends = context.wrap_bio(
            self._in, self._out, server_side=host is None, server_hostname=host
        )
        self._lock = Lock()
        self.is_open = False  # Each knows who the other is.

    def take(self, data: bytes) -> bytes:
        """Take what came; return what it says. Raises LinkError if it cannot be believed."""
        with self._lock:
            self._in.write(data)
            try:
                return self._read() if self.is_open or self._shake_hands() else b""
            except ssl.SSLError as error:
                raise LinkError(_explain(error)) from None

    def _shake_hands(self) -> bool:
        try:
            self._ends.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.is_open = True
        return True

    def _read(self) -> bytes:
        pieces = []
        try:
            while piece := self._ends.read(_READ_BYTES):
                pieces.append(piece)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return b"".join(pieces)

    def seal(self, data: bytes = b"") -> bytes:
        """Return what to send so that the other end reads this; also what is to be said anyhow."""
        with self._lock:
            rest = memoryview(data)
            while rest:
                rest = rest[self._ends.write(rest) :]
            return self._out.read()

    def names(self) -> frozenset[str]:
        """Return the names that the certificate of the other end is for."""
        shown: dict[str, Any] = self._ends.getpeercert() or {}
        pairs = [*shown.get("subjectAltName", ()), *chain(*shown.get("subject", ()))]
        return frozenset(value for kind, value in pairs if kind in ("DNS", "commonName"))


class Tls:
    """What a node shows and trusts."""

    def __init__(self, files: TlsFiles) -> None:
        self._called = _make_context(ssl.PROTOCOL_TLS_SERVER, files)
        self._calling = _make_context(ssl.PROTOCOL_TLS_CLIENT, files)

    def begin(self, host: str | None) -> TlsSession:
        """Begin with a connection that we made to a host, or (None) that was made to us."""
        if host is None:
            return TlsSession(self._called, None)
        return TlsSession(self._calling, host.partition("%")[0])


def _make_context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(files.ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"ca={files.ca}: {_fault(error)}") from None
    try:
        context.load_cert_chain(files.certificate, files.key, _refuse_to_ask)
    except (OSError, ssl.SSLError) as error:
        where = f"certificate={files.certificate}, key={files.key}"
        raise ConfigurationError(f"{where}: {_fault(error)}") from None
    return context


def _refuse_to_ask() -> NoReturn:
    """Ask nobody for a passphrase: who is not there could not answer."""
    raise ConfigurationError("the key is encrypted: give one that is not, in a file only you read")


def _fault(error: OSError) -> str:
    """Say what is wrong with a file."""
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the key is not that of the certificate"
        return "this is no PEM file of the kind"
    return (error.strerror or str(error)).lower()


def _explain(error: ssl.SSLError) -> str:
    """Say in a few words why two ends do not trust each other."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message.rstrip('.')}"
    reason = error.reason or "no reason given"
    return _REASONS.get(reason, f"TLS failed: {reason.lower().replace('_', ' ')}")
