"""Certificates made by openssl, for 127.0.0.1 unless another host is named."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.requirements import need

# As RFC 5280 wants them: Python looks at them from 3.13 on.
EXTENSIONS: Final = """\
basicConstraints=critical,CA:TRUE
keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
"""


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
    extensions: str = EXTENSIONS,
    subject: str = "",
) -> Certificate:
    """A fresh one in this directory, signed `by` another or by its own key. Of 0 `days` it has expired.
    `subject`: in place of the common name `name`."""
    if shutil.which("openssl") is None:
        need({"openssl": "openssl is not installed: Debian has it as openssl"})
    directory.mkdir(parents=True, exist_ok=True)
    made, asked = Certificate(directory / "node.crt", directory / "node.key"), directory / "node.csr"
    _openssl(
        "req", "-newkey", "rsa:2048", "-nodes", "-subj", subject or f"/CN={name}", "-out", asked, "-keyout", made.key
    )
    more = directory / "node.ext"
    more.write_text(f"subjectAltName={host}\n{extensions}")
    own = ["-signkey", made.key]
    signer = own if by is None else ["-CA", by.certificate, "-CAkey", by.key, "-CAcreateserial"]
    _openssl("x509", "-req", "-in", asked, *signer, "-days", days, "-extfile", more, "-out", made.certificate)
    return made


def _openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
