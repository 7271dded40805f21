"""Who may ask for what: RocketMQ's signatures, by the keys of the cluster (`towline.link.keys`).

A client signs each request with its access key, which is the name of its key, and its secret key (`access` in its
file).
"""

import hmac
import time
from typing import Final

from towline.format.remoting.codes import RequestCode, RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.signing import ACCESS_KEY, SIGNATURE, signature
from towline.limits import LOOK_MS
from towline.link.keys import KEYS_MADE, AuthorizedKeys, Key
from towline.link.permissions import NotPermitted, Permit
from towline.runtime.remoting_counts import Ending

from .connections import Connection, Connections
from .needs import need_of

REVOKED_EVERY_MS: Final = 500
KNOWN_S: Final = 1.0  # a revoked key is refused this late at most: reading the directory costs more than a send


class Access:
    """Checks requests by the keys of a directory; without one everybody may ask for everything."""

    def __init__(self, keys: AuthorizedKeys | None) -> None:
        self._keys = keys
        self._known: dict[str, tuple[Key, str]] = {}  # by access key, with the secret key: until the directory is read
        self._known_until = 0.0
        self._shown: set[Connection] = set()  # a request was the first to show that their key is not as it was
        self._revoked_at = 0

    @property
    def is_open(self) -> bool:
        return self._keys is None

    @property
    def look_ms(self) -> int:
        """How long nobody has to look for revoked keys."""
        return LOOK_MS if self._keys is None else REVOKED_EVERY_MS

    def check(self, request: Command, connection: Connection) -> None:
        """Raises RequestRefused for one without a signature, with a wrong one, or of a key without the role, or whose
        roles do not reach what it names; MalformedFrame where that cannot be read."""
        if self._keys is None or request.code == RequestCode.TOWLINE:  # there the greeting is signed
            return
        name = request.fields.get(ACCESS_KEY, "")
        found = self._find(self._keys, name)
        if found is not None and not _is_signed(request, found[1]):
            found = self._find(self._keys, name, anew=True)  # a new key may have the name of one that was revoked
        if found is None:
            why = "the request is not signed" if not name else f"no key {name[:64]!r} is allowed"
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"{why}; {KEYS_MADE}")
        key, secret = found
        if not _is_signed(request, secret):
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"the signature of {key.name!r} is wrong")
        if connection.has_greeted and connection.key is not None and connection.key.name != name:
            why = f"this connection has greeted with the key {connection.key.name!r}, and this is {name!r}"
            raise RequestRefused(ResponseCode.NO_PERMISSION, why)
        if connection.key is not key:
            if connection.key is not None and connection.key.name == name and connection.key != key:
                self._shown.add(connection)
            connection.key, connection.permit = key, self._keys.permit(key)
        if connection.permit is not None:
            _check_permit(key, connection.permit, request)

    def look_for_changes(self, connections: Connections, now_ms: int) -> list[Connection]:
        """Ends, from time to time, the connections whose key was revoked, or is another by now. They hear nothing more:
        held pulls, checks of transactions and members of groups end with them. Who has a key that may do something else
        by now stays; returns the connections of these."""
        if self._keys is None or now_ms < self._revoked_at:
            return []
        self._revoked_at = now_ms + REVOKED_EVERY_MS
        held = {each: each.key for each in connections if each.key is not None}
        changed = self._keys.changed(set(held.values()))
        if changed:
            self._known.clear()
        stay = [each for each in self._shown if each.is_open]
        self._shown.clear()
        for connection, key in held.items():
            if key not in changed:
                continue
            now = changed[key]
            if now is None:
                connections.end(connection, Ending.REVOKED, f"its key {key.name!r} was revoked")
            else:
                connection.key, connection.permit = now, self._keys.permit(now)
                stay.append(connection)
        return stay

    def _find(self, keys: AuthorizedKeys, name: str, *, anew: bool = False) -> tuple[Key, str] | None:
        now = time.monotonic()
        if anew:
            self._known.pop(name, None)
        if now >= self._known_until:
            self._known.clear()
            self._known_until = now + KNOWN_S
        found = self._known.get(name) or keys.access(name)
        if found is not None:
            self._known[name] = found
        return found


def _check_permit(key: Key, permit: Permit, request: Command) -> None:
    """Raises RequestRefused, MalformedFrame."""
    need = need_of(request.code)
    has_role = not need.roles.isdisjoint(key.roles)
    if has_role and not permit.is_limited:
        return
    if not (has_role or need.gives_back):
        why = f"request {request.code} is for {' or '.join(sorted(need.roles))}, and {key.name!r} is "
        raise RequestRefused(ResponseCode.NO_PERMISSION, why + ", ".join(key.roles))
    try:
        need.check(permit, request)
    except NotPermitted as refused:
        raise RequestRefused(ResponseCode.NO_PERMISSION, str(refused)) from None


def _is_signed(request: Command, secret: str) -> bool:
    return hmac.compare_digest(signature(request, secret), request.fields.get(SIGNATURE, "").encode())
