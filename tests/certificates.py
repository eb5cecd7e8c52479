"""Certificates for tests, made by the command `openssl`, and gone with the folder they are in."""

import shutil
import subprocess
from pathlib import Path

import pytest

from hubbub import TcpOptions

DAYS = 2
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("the command openssl is not there to make certificates with")
        self.folder = folder
        self.path, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        _run("req", "-x509", *_KEY, "-keyout", self._key, "-out", self.path, "-subj", f"/CN={name}")

    def options(
        self, name: str, *, alternatives: str = "IP:127.0.0.1", days: int = DAYS,
        allow: tuple[str, ...] = (), trusts: "Authority | None" = None,
    ) -> TcpOptions:  # fmt: skip
        """Sign a certificate, valid for so many days from now; -1: it was."""
        stem = self.folder / f"{self.path.stem}-{name}"
        request, extras = stem.with_suffix(".csr"), stem.with_suffix(".ext")
        certificate, key = stem.with_suffix(".pem"), stem.with_suffix(".key")
        _run("req", "-new", *_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        extras.write_text(f"subjectAltName=DNS:{name},{alternatives}")
        _run(
            "x509", "-req", "-in", request, "-CA", self.path, "-CAkey", self._key, "-days", days,
            "-out", certificate, "-extfile", extras,
        )  # fmt: skip
        ca = (trusts or self).path
        return TcpOptions(str(ca), str(certificate), str(key), allow)


def _run(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)
