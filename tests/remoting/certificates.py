"""Certificates made by openssl, for 127.0.0.1 unless another host is named."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.requirements import need


@dataclass(frozen=True)
class Certificate:
    """Without another that vouches for it, it is what a client has to trust."""

    certificate: Path
    key: Path


def certificate(
    directory: Path,
    *,
    host: str = "IP:127.0.0.1",
    name: str = "127.0.0.1",
    by: Certificate | None = None,
    days: int = 2,
) -> Certificate:
    """A fresh one in this directory, signed `by` another or by its own key. Of -1 `days` it has expired."""
    if shutil.which("openssl") is None:
        need({"openssl": "openssl is not installed: Debian has it as openssl"})
    directory.mkdir(parents=True, exist_ok=True)
    made, asked = Certificate(directory / "node.crt", directory / "node.key"), directory / "node.csr"
    words: list[object] = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"]
    more = ["-addext", f"subjectAltName={host}", "-addext", "basicConstraints=CA:TRUE"]
    _openssl(*words, *more, "-out", asked, "-keyout", made.key)
    own = ["-signkey", made.key]
    signer = own if by is None else ["-CA", by.certificate, "-CAkey", by.key, "-CAcreateserial"]
    _openssl(
        "x509", "-req", "-in", asked, *signer, "-days", days, "-copy_extensions", "copyall", "-out", made.certificate
    )
    return made


def _openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
