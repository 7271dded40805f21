"""A certificate for 127.0.0.1, made by openssl."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.requirements import need


@dataclass(frozen=True)
class Certificate:
    """Signed by its own key, so it is what a client has to trust."""

    certificate: Path
    key: Path


def certificate(directory: Path) -> Certificate:
    """A fresh one in this directory."""
    if shutil.which("openssl") is None:
        need({"openssl": "openssl is not installed: Debian has it as openssl"})
    directory.mkdir(parents=True, exist_ok=True)
    made = Certificate(directory / "node.crt", directory / "node.key")
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(made.certificate), "-keyout", str(made.key)]
    subprocess.run(words, check=True, capture_output=True)
    return made
