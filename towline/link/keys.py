"""The key ring, a directory: who may connect to a node's ports, and how each side knows the other.

    server.secret.json      the CURVE key pair with which the nodes of a cluster know each other, mode 0600
    server.pem              the certificate that clients know the nodes by, and its private key, mode 0600
    allowed/NAME.json       name, roles and public key of a client that may connect, and `limits` of the roles to
                            topics and groups (`permissions`)
    revoked/NAME.json       the same of a client that may not connect any more
    handed/NAME.secret.json the file for the client NAME, mode 0600: all that it needs

Keys are 40 characters of Z85 (RFC 32). A client signs its greeting with the secret key in its file (`access`), as one
of RocketMQ's signs each request; the access key that belongs to it is NAME. The nodes keep none of these: each follows
from their own secret and the client's public key. The file also has the nodes' certificate, which is made for RING_HOST
and not for an address: a ring is for nodes anywhere.
"""

import hashlib
import hmac
import json
import logging
import os
import re
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Any, Final

import zmq
from zmq.utils import z85

from towline.errors import Remedy, TowlineError

from .permissions import (
    ADMIN,
    CONSUMER,
    KINDS,
    NO_LIMITS,
    PRODUCER,
    BadPattern,
    Limits,
    Permit,
    read_limits,
    read_roles,
)

log = logging.getLogger(__name__)

ENVIRONMENT: Final = "TOWLINE_KEYS"  # path of a file that was handed out
RING_HOST: Final = "ring.towline.invalid"  # whom the certificate of a ring is for; no host has this name (RFC 6761)
KEY_SIZE: Final = 40
_KEY_BYTES: Final = 32
ROLES: Final = {  # role of a key -> roles that its holder may greet with
    PRODUCER: frozenset({PRODUCER}),
    CONSUMER: frozenset({CONSUMER}),
    ADMIN: frozenset(KINDS),
}
NODE: Final = "node"  # the name, and the role, of who has the nodes' own key
FORWARDER: Final = "forwarder"  # the role of a slave that hands on commits of its readers
_ROLES_OF_NODES: Final = {NODE: frozenset({FORWARDER})}  # where clients come
ADMIN_ASKS: Final = frozenset(  # questions that change what is everybody's, or tell of the node itself
    {
        *("create_topic", "alter_topic", "delete_topic", "group_reset", "group_delete", "group_configure"),
        *("node_status", "node_stats", "node_segments", "node_settings", "node_configure"),
    }
)
_MAKER: Final = "towline.node.ring_certificate"  # clients make none, and do not have what it takes
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SECRET_MODE: Final = 0o600
_PUBLIC_MODE: Final = 0o644


KEYS_MADE: Final = "`towline keys new NAME --dir DIR --role ROLE` makes one"


class BadKeys(TowlineError, remedy=Remedy.FIX_SETTINGS):
    """A key file or keys directory that cannot be used."""

    path: str  # or name
    why: str
    advice = f"`towline keys list --dir DIR` shows the keys of a directory, {KEYS_MADE}"


class RoleRefused(TowlineError, remedy=Remedy.FIX_CALL):
    op: str
    role: str
    whom: str
    template = "{op} is for {whom}, and this link is a {role}'s"
    advice = "use a key with that role, as that role"


@dataclass(frozen=True, slots=True)
class Key:
    """Of a client, or of the nodes."""

    name: str
    roles: tuple[str, ...]
    public: str
    secret: str = ""  # the other half of `public`: of the nodes alone
    access: str = ""  # what its holder signs with
    certificate: str = ""  # of the nodes, PEM
    limits: Limits = NO_LIMITS

    @property
    def may_greet_as(self) -> frozenset[str]:
        """Who consumes in groups that are named is a producer too: for their retry topics, as `permit` says."""
        known = ROLES | _ROLES_OF_NODES
        gives_back = CONSUMER in self.roles and bool(self.limits.groups)
        return frozenset({PRODUCER} if gives_back else ()).union(*(known[role] for role in self.roles))


@dataclass(frozen=True, slots=True)
class Listed:
    """One key of the directory as `towline keys list` shows it."""

    key: Key
    revoked: bool


def check_ask(op: object, key: str, role: object) -> None:
    """Raises RoleRefused for a question that the role does not allow; `key` is "" where no keys are asked for."""
    if key and isinstance(op, str) and op in ADMIN_ASKS and role != ADMIN:
        raise RoleRefused(op, str(role), "admins")


class AuthorizedKeys:
    """The keys directory of a node. Added and revoked keys are noticed by themselves."""

    def __init__(self, directory: Path) -> None:
        """Raises BadKeys where the nodes' own keys are not there or of no use, and for a file that is no key."""
        self.directory = directory
        self.server = read_key(_server(directory))
        if not self.server.secret:
            raise BadKeys(str(_server(directory)), "it holds no secret key")
        self.certificate = certificate_of(directory)
        _check_certificate(self.certificate)
        self._node = self.as_client
        self._seen: list[tuple[str, int, int, int]] | None = None
        self._names: dict[str, Key] = {}
        self._permits: dict[Key, Permit] = {}
        _keys_in(_allowed(directory))

    @property
    def as_client(self) -> Key:
        """The key with which a node connects to another node."""
        public, secret = self.server.public, self.server.secret
        shown = self.certificate.read_text(encoding="ascii")
        return Key(NODE, (NODE,), public, secret, access_secret(secret, public), shown[shown.index(_BEGIN) :])

    def access(self, name: str) -> tuple[Key, str] | None:
        """The allowed key of this name, or the nodes' own, and what its holder signs with; None of a stranger."""
        if name == NODE:
            return self._node, self._node.access
        self._refresh()
        key = self._names.get(name)
        return None if key is None else (key, access_secret(self.server.secret, key.public))

    def permit(self, key: Key) -> Permit:
        """What the holder of this key may do: the same object for as long as the key is the same."""
        found = self._permits.get(key)
        if found is None:
            found = self._permits[key] = Permit(key.name, key.roles, key.limits)
        return found

    def changed(self, keys: Iterable[Key]) -> dict[Key, Key | None]:
        """Those of these keys that are not as they were: with the roles and limits that they have now, or None where
        they are not allowed any more. A new key may have the name of one that was lost. None at all while the directory
        cannot be read: nobody new comes in then."""
        self._refresh()
        if self._seen is None:
            return {}
        now = {key: self._names.get(key.name) for key in keys if key is not self._node}
        return {
            key: found if found is not None and found.public == key.public else None
            for key, found in now.items()
            if found != key
        }

    def _refresh(self) -> None:
        """A directory's own time is not enough: `cp` fills a file after it was made, and two changes may share a tick.

        Beside a running node a file that is no key is ignored, and so is a directory that cannot be read.
        """
        seen: list[tuple[str, int, int, int]] = []
        try:
            with os.scandir(_allowed(self.directory)) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # one that was revoked, or renamed, just now
                        found = entry.stat()
                        seen.append((entry.name, found.st_ino, found.st_mtime_ns, found.st_size))
        except OSError as error:  # it is being changed, or gone: read again the next time
            if self._names:
                log.error("no key opens anything: %s", error)
            self._names, self._seen = {}, None
            return
        seen.sort()
        if seen != self._seen:
            self._names = {key.name: key for key in _keys_in(_allowed(self.directory), skipping=True)}
            known = {self._node, *self._names.values()}
            self._permits = {key: permit for key, permit in self._permits.items() if key in known}
            self._seen = seen


def access_secret(server_secret: str, public: str) -> str:
    """What the holder of a public key signs with, RocketMQ's secret key: 64 hex digits."""
    return hmac.new(server_secret.encode(), b"towline access " + public.encode(), hashlib.sha256).hexdigest()


def make_node_keys(directory: Path) -> bool:
    """Makes what the nodes have of a ring, where it is not there; whether something was made. It takes what the extra
    `server` has. Raises BadKeys."""
    known, made = _server(directory).exists(), not certificate_of(directory).exists()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if made:
        _write_durably(certificate_of(directory), import_module(_MAKER).make_certificate(), _SECRET_MODE)
    if known:
        read_key(_server(directory))
    else:
        public, secret = zmq.curve_keypair()
        _write(_server(directory), Key("server", (), public.decode(), secret.decode()), _SECRET_MODE)
    return made or not known


def new_key(directory: Path, name: str, roles: Sequence[str], groups: Sequence[str] = ()) -> Path:
    """Makes a key with these roles, `producer` or, for some topics alone, `producer:orders,orders-*`; it consumes in
    these groups, none for every group. Returns the file for the client.

    Raises BadKeys: no directory, a bad or taken name, a bad role or pattern.
    """
    if not _NAME.fullmatch(name) or name in (NODE, "server"):
        raise BadKeys(name, "a key's name is letters, digits, dots, dashes and underscores, and not one of the nodes'")
    kinds, limits = _roles(name, roles, groups)
    nodes = AuthorizedKeys(directory).as_client
    if (_allowed(directory) / f"{name}.json").exists():
        raise BadKeys(name, "there is such a key; revoke it first, or choose another name")
    allowed = Key(name, kinds, zmq.curve_keypair()[0].decode())
    handed = directory / "handed" / f"{name}.secret.json"
    access = access_secret(nodes.secret, allowed.public)
    _write(handed, replace(allowed, access=access, certificate=nodes.certificate), _SECRET_MODE)
    _write(_allowed(directory) / f"{name}.json", replace(allowed, limits=limits), _PUBLIC_MODE)
    return handed


def change_key(directory: Path, name: str, roles: Sequence[str], groups: Sequence[str] = ()) -> Key:
    """Gives a key these roles and groups (`new_key`) in place of all that it has; its file at the client stays good.
    Raises BadKeys."""
    kinds, limits = _roles(name, roles, groups)
    path = _existing(directory, name)
    changed = replace(read_key(path), roles=kinds, limits=limits)
    _write(path, changed, _PUBLIC_MODE)
    return changed


def _roles(name: str, roles: Sequence[str], groups: Sequence[str]) -> tuple[tuple[str, ...], Limits]:
    """Raises BadKeys."""
    try:
        return read_roles(roles, groups)
    except BadPattern as error:
        raise BadKeys(name, str(error)) from None


def revoke_key(directory: Path, name: str) -> None:
    """Revokes a key: connections with it end, and new ones are refused. Raises BadKeys."""
    path = _existing(directory, name)
    revoked = _revoked(directory)
    revoked.mkdir(exist_ok=True)
    number, target = 1, revoked / f"{name}.json"
    while target.exists():
        number += 1
        target = revoked / f"{name}.{number}.json"
    path.rename(target)
    for changed in (path.parent, revoked):
        _sync_directory(changed)


def _existing(directory: Path, name: str) -> Path:
    """The file of an allowed key. Raises BadKeys."""
    path = _allowed(directory) / f"{name}.json"
    if not _NAME.fullmatch(name) or not path.exists():
        known = ", ".join(sorted(found.stem for found in _allowed(directory).glob("*.json"))) or "none"
        raise BadKeys(name, f"there is no such key in {directory}; there are: {known}")
    return path


def list_keys(directory: Path) -> list[Listed]:
    """Every key of the directory, allowed ones first. Raises BadKeys."""
    read_key(_server(directory))
    allowed = [Listed(key, False) for key in _keys_in(_allowed(directory))]
    return allowed + [Listed(key, True) for key in _keys_in(_revoked(directory))]


def read_key(path: Path) -> Key:
    """The key in a file. Raises BadKeys, also for a secret that others may read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        roles = tuple(map(str, found["roles"]))
        key = Key(
            str(found["name"]),
            roles,
            str(found["public"]),
            str(found.get("secret", "")),
            str(found.get("access", "")),
            str(found.get("certificate", "")),
            read_limits(found.get("limits"), roles),
        )
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        raise BadKeys(str(path), error.strerror or str(error)) from None
    except BadPattern as error:
        raise BadKeys(str(path), str(error)) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadKeys(str(path), f"it is no key file: {error!r}") from None
    known = all(role in ROLES for role in key.roles)
    if not known or not _is_key(key.public) or not _is_key(key.secret or key.public):
        raise BadKeys(str(path), f"it is no key file: keys have {KEY_SIZE} characters, roles are {', '.join(ROLES)}")
    if key.access and _BEGIN not in key.certificate:
        raise BadKeys(str(path), "it was handed out by a ring without a certificate: a new one is wanted")
    if (key.secret or key.access) and mode & 0o077:
        raise BadKeys(str(path), f"others than its owner may read this secret (mode {mode:o}): chmod 600 it")
    return key


def _is_key(text: str) -> bool:
    try:
        return len(text) == KEY_SIZE and len(z85.decode(text.encode("ascii"))) == _KEY_BYTES
    except (ValueError, KeyError, struct.error):
        return False


def environment_key() -> Key | None:
    """The key in the file that TOWLINE_KEYS names, None where it names none. Raises BadKeys."""
    path = os.environ.get(ENVIRONMENT)
    if not path:
        return None
    key = read_key(Path(path))
    if not key.access:
        raise BadKeys(path, "it is no file of a client: one of those in `handed` is wanted")
    return key


def _keys_in(directory: Path, *, skipping: bool = False) -> list[Key]:
    """Raises BadKeys, or leaves such a file out and says so."""
    keys = []
    for path in sorted(directory.glob("*.json")):
        try:
            keys.append(read_key(path))
        except BadKeys as error:
            if not skipping:
                raise
            log.error("a key file is ignored: %s", error)
    return keys


def _server(directory: Path) -> Path:
    return directory / "server.secret.json"


def certificate_of(directory: Path) -> Path:
    """The certificate of a ring and its private key, PEM."""
    return directory / "server.pem"


def _check_certificate(path: Path) -> None:
    """Raises BadKeys."""
    if not path.exists():
        made = f"`towline keys new NAME --dir {quote(str(path.parent))} --role ROLE` makes one"
        why = f"the ring has no certificate: {made}, on one machine; copy it to every node"
        raise BadKeys(str(path), why)
    try:
        mode, text = path.stat().st_mode & 0o777, path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadKeys(str(path), getattr(error, "strerror", None) or str(error)) from None
    if _BEGIN not in text:
        raise BadKeys(str(path), "it holds no certificate")
    if mode & 0o077:
        raise BadKeys(str(path), f"others than its owner may read this secret (mode {mode:o}): chmod 600 it")


def _allowed(directory: Path) -> Path:
    return directory / "allowed"


def _revoked(directory: Path) -> Path:
    return directory / "revoked"


def _write(path: Path, key: Key, mode: int) -> None:
    """Raises BadKeys when it cannot be written."""
    content: dict[str, Any] = {"name": key.name, "roles": key.roles, "public": key.public}
    content |= {"secret": key.secret} if key.secret else {}
    content |= {"access": key.access} if key.access else {}
    content |= {"certificate": key.certificate} if key.certificate else {}
    content |= {"limits": key.limits.facts} if key.limits.facts else {}
    _write_durably(path, (json.dumps(content, indent=1) + "\n").encode(), mode)


def _write_durably(path: Path, data: bytes, mode: int) -> None:
    """Never with wider rights for a moment. Raises BadKeys when it cannot be written."""
    staged = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        staged.replace(path)
        _sync_directory(path.parent)
    except OSError as error:
        staged.unlink(missing_ok=True)
        raise BadKeys(str(path), error.strerror or str(error)) from None


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
