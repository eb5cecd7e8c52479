"""Where the nodes of one host meet: a directory of their user, with a socket of each in it.

A node listens under a name made of its domain, channel and key. Who comes later connects to
everybody it finds there, so that two nodes meet without a network, and "the same host" is not a
name but a connection. Nobody else may enter the directory, and who connects is looked at anyway.
"""

import contextlib
import os
import re
import select
import socket
from pathlib import Path
from typing import Final

from hubbub.errors import LinkError
from hubbub.wire.header import KEY_BYTES

_PATH_BYTES_MAX: Final = 107
_NAME: Final = re.compile(rf"[0-9a-f]{{16}}-[0-9a-f]{{{2 * KEY_BYTES}}}")


def is_supported() -> bool:
    """Tell whether this system has what pipes need."""
    return hasattr(socket, "SO_PEERCRED") and hasattr(select, "epoll")


def runtime_directory() -> Path:
    """Return where the nodes of this user meet, made if need be; nobody else may enter."""
    chosen = os.environ.get("HUBBUB_RUNTIME_DIR")
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if chosen:
        directory = Path(chosen)
    elif base and os.path.isdir(base):
        directory = Path(base, "hubbub")
    else:
        directory = Path(f"/tmp/hubbub-{os.getuid()}")
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        raise LinkError(f"no runtime directory {directory}: {error.strerror}") from None
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or not directory.is_dir():
        raise LinkError(
            f"{directory} must be a directory of this user that nobody else may enter (mode 0700)"
        )
    return directory


class MeetingPoint:
    """The place of one channel of one domain, as one node sees it."""

    def __init__(
        self, key: bytes, domain: int, place: int, directory: Path, calls_max: int
    ) -> None:
        self._key = key
        self._directory = directory
        self._prefix = f"{domain:08x}{place:08x}-"
        self._path = self._path_of(key)
        self._listener = self._listen(calls_max)
        self._sweep()

    def fileno(self) -> int:
        """Return the descriptor that is readable when somebody connects."""
        return self._listener.fileno()

    def _listen(self, calls_max: int) -> socket.socket:
        if len(os.fsencode(self._path)) > _PATH_BYTES_MAX:
            raise LinkError(f"{self._path} is too long for the name of a UNIX socket")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        hidden = self._path.with_name(f".{self._key.hex()}{os.getpid()}")
        try:
            listener.setblocking(False)
            listener.bind(str(hidden))
            os.chmod(hidden, 0o600)
            listener.listen(calls_max)
            os.rename(hidden, self._path)  # Only now: who finds it can connect.
        except OSError as error:
            listener.close()
            with contextlib.suppress(OSError):
                os.unlink(hidden)
            raise LinkError(f"cannot listen in {self._directory}: {error.strerror}") from None
        return listener

    def neighbours(self) -> list[bytes]:
        """Find the keys of the others who listen here."""
        try:
            names = os.listdir(self._directory)
        except OSError:
            return []
        keys = [
            _key_of(name.removeprefix(self._prefix))
            for name in names
            if name.startswith(self._prefix)
        ]
        return [key for key in keys if key not in (b"", self._key)]

    def connect(self, key: bytes) -> socket.socket | None:
        """Connect to one of them; None: it is gone, or has no time."""
        return _call(self._path_of(key))

    def _sweep(self) -> None:
        """Remove what killed nodes of other domains left, where nobody else may ever come.

        Those of this domain are found when they are called. Who lives is not disturbed: the kernel
        lists who listens, by the first name of its socket, if not in another network namespace.
        """
        with contextlib.suppress(OSError):
            names = [name for name in os.listdir(self._directory) if _NAME.fullmatch(name)]
            others = [name for name in names if not name.startswith(self._prefix)]
            listening = Path("/proc/net/unix").read_text(errors="replace") if others else ""
            for name in others:
                if name.partition("-")[2] not in listening:
                    called = _call(self._directory / name)
                    if called is not None:
                        called.close()

    def accept(self) -> socket.socket | None:
        """Take the next one who has connected to us; None: nobody else has."""
        try:
            opened, _ = self._listener.accept()
        except OSError:
            return None
        opened.setblocking(False)
        return opened

    def remove(self, key: bytes) -> None:
        """Remove the socket of one who was killed and could not do it."""
        with contextlib.suppress(OSError):
            os.unlink(self._path_of(key))

    def close(self) -> None:
        """Listen no more."""
        self.remove(self._key)
        self.abandon()

    def abandon(self) -> None:
        """Close the descriptor alone: in a forked child, whose parent goes on."""
        self._listener.close()

    def _path_of(self, key: bytes) -> Path:
        return self._directory / f"{self._prefix}{key.hex()}"


def _call(path: Path) -> socket.socket | None:
    """Connect to who listens there; None: it is gone, or has no time."""
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    opened.setblocking(False)
    try:
        opened.connect(str(path))
    except ConnectionRefusedError:  # Who listened there was killed.
        with contextlib.suppress(OSError):
            path.unlink()
    except OSError:
        pass
    else:
        return opened
    opened.close()
    return None


def _key_of(text: str) -> bytes:
    """Return the key in a name; empty if there is none."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        return b""
    return key if len(key) == KEY_BYTES else b""
