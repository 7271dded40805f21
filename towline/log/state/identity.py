"""`identity.json`: the cluster and the id of the log that a store holds.

The store id names a log, not a directory: a master creates it, and its slaves adopt it while their own log is empty.
`check` is a CRC-32 of the other members: one flipped bit would make it another log's, or another version's. It is made
in the same way by every version of the format.
"""

import json
import secrets
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from towline.errors import IdentityMismatch, MalformedFile, StoreOfAnotherVersion
from towline.log.files.store_files import write_atomically

NAME: Final = "identity.json"
FORMAT_VERSION: Final = 1
STORE_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """`store_id` is 32 hexadecimal digits, random, made once for each log."""

    format_version: int = FORMAT_VERSION
    cluster: str
    store_id: str


def encode(identity: Identity) -> bytes:
    """The file's bytes."""
    return json.dumps(asdict(identity) | {"check": _check(identity)}, indent="\t").encode() + b"\n"


def _check(identity: Identity) -> str:
    covered = f"{identity.format_version}\n{identity.cluster}\n{identity.store_id}"
    return f"{zlib.crc32(covered.encode('utf-8', 'surrogatepass')):08x}"


class IdentityFile:
    """Any process loads it; the supervisor creates it, and a slave adopts that of its master."""

    def __init__(self, store: Path) -> None:
        self.path = store / NAME

    def load(self) -> Identity | None:
        """The identity; None for a store without, as a real broker's. Raises MalformedFile, StoreOfAnotherVersion."""
        try:
            content = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise MalformedFile(str(self.path), f"it is not JSON: {error}") from error
        try:
            version, cluster, store_id = content["format_version"], content["cluster"], content["store_id"]
            valid = isinstance(cluster, str) and len(bytes.fromhex(store_id)) == STORE_ID_BYTES
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedFile(str(self.path), f"no identity can be read from it: {error!r}") from error
        identity = Identity(format_version=version, cluster=cluster, store_id=store_id)
        sound = content.get("check", _check(identity)) == _check(identity)
        if sound and version != FORMAT_VERSION:
            raise StoreOfAnotherVersion(str(self.path), "format version", str(version), str(FORMAT_VERSION))
        if not valid:
            raise MalformedFile(str(self.path), "its store id is not 32 hexadecimal digits")
        if not sound:
            raise MalformedFile(str(self.path), "its members do not fit its check")
        return identity

    def create(self, cluster: str) -> Identity:
        """A new identity in that cluster, written durably. The store must have none."""
        assert not self.path.exists(), f"{self.path} exists: a store keeps its identity"
        identity = Identity(cluster=cluster, store_id=secrets.token_hex(STORE_ID_BYTES))
        self._write(identity)
        return identity

    def check(self, cluster: str) -> Identity | None:
        """The identity the store has, None for a store without. Raises IdentityMismatch if it is of another cluster."""
        identity = self.load()
        if identity is not None and identity.cluster != cluster:
            raise IdentityMismatch(str(self.path), "cluster", identity.cluster, cluster)
        return identity

    def take_over(self, cluster: str, store_id: str) -> Identity:
        """Writes the identity of a slave's master; the slave's log must be empty, or of that id already."""
        identity = self.check(cluster)
        if identity is None or identity.store_id != store_id:
            identity = Identity(cluster=cluster, store_id=store_id)
            self._write(identity)
        return identity

    def _write(self, identity: Identity) -> None:
        write_atomically(self.path, encode(identity))
