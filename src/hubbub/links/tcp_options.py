"""What connections by TCP are like, beyond where they lead: who may make them, sealed how."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from hubbub.errors import ConfigurationError
from hubbub.links.allowing import AllowList
from hubbub.links.compression import CODECS

if TYPE_CHECKING:
    from hubbub.links.tls import Tls


@dataclass(frozen=True, slots=True)
class TcpOptions:
    """Options of a node's connections by TCP, checked when made; files are read when it opens.

    `ca`, `certificate` and `key` are PEM files: with them every connection is TLS 1.3, and both
    ends must show a certificate of that authority; who is called must have one for the name it was
    called by. `allow` lists who may call: networks, addresses, and names of certificates.
    `compress` is `zlib`, or `zstd` with `zlib` for who has no other; it is done with peers that
    are asked to as well.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    allow: tuple[str, ...] = ()
    compress: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot work together."""
        for name in ("ca", "certificate", "key"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise ConfigurationError(f"{name}={value!r} is no path of a file")
        missing = [name for name in ("ca", "certificate", "key") if not getattr(self, name)]
        if 0 < len(missing) < 3:
            raise ConfigurationError(
                f"{missing[0]} is missing: TLS needs ca, certificate and key, or none of them"
            )
        if self.compress not in ("", *CODECS):
            raise ConfigurationError(f"compress={self.compress!r} is none of {', '.join(CODECS)}")
        names = AllowList(self.allow).names
        if names and missing:
            raise ConfigurationError(
                f"allow={min(names)!r} is a name, which only a certificate can prove:"
                " give ca, certificate and key, or a network such as 10.0.0.0/8"
            )

    def make_tls(self) -> "Tls | None":
        """Read the certificates, if there are any."""
        if not self.ca:
            return None
        from hubbub.links.tls import Tls, TlsFiles  # 20 ms that every start would cost.

        return Tls(TlsFiles(self.ca, self.certificate, self.key))


TCP_OPTIONS = tuple(field.name for field in fields(TcpOptions))


def make_tcp_options(name: str, parts: dict[str, Any]) -> TcpOptions:
    """Make options of a table; what is none of them is said, with the name of the table."""
    unknown = sorted(set(parts) - set(TCP_OPTIONS))
    if unknown:
        raise ConfigurationError(f"{name}: {unknown[0]} is none of {', '.join(TCP_OPTIONS)}")
    allow = parts.get("allow", ())
    if not isinstance(allow, list | tuple) or not all(isinstance(one, str) for one in allow):
        raise ConfigurationError(f"{name}: allow={allow!r} is not a list of texts")
    return TcpOptions(**{**parts, "allow": tuple(allow)})
