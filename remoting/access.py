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
from towline.link.keys import ADMIN, KEYS_MADE, AuthorizedKeys, Key
from towline.runtime.remoting_counts import Ending

from .connections import Connection, Connections

PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
REVOKED_EVERY_MS: Final = 500
KNOWN_S: Final = 1.0  # a revoked key is refused this late at most: reading the directory costs more than a send
_PRODUCERS: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.RECALL_MESSAGE,
        RequestCode.END_TRANSACTION,
    }
)
_CONSUMERS: Final = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
    }
)
_EVERYBODY: Final = frozenset(
    {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
    }
)


class Access:
    """Checks requests by the keys of a directory; without one everybody may ask for everything."""

    def __init__(self, keys: AuthorizedKeys | None) -> None:
        self._keys = keys
        self._known: dict[str, tuple[Key, str]] = {}  # by access key, with the secret key: until the directory is read
        self._known_until = 0.0
        self._revoked_at = 0

    @property
    def is_open(self) -> bool:
        return self._keys is None

    @property
    def look_ms(self) -> int:
        """How long nobody has to look for revoked keys."""
        return LOOK_MS if self._keys is None else REVOKED_EVERY_MS

    def check(self, request: Command, connection: Connection) -> None:
        """Raises RequestRefused for one without a signature, with a wrong one, or of a key without the role."""
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
        if not key.may_greet_as & roles_for(request.code):
            why = f"request {request.code} is for {' or '.join(sorted(roles_for(request.code)))}, and {key.name!r} is "
            raise RequestRefused(ResponseCode.NO_PERMISSION, why + ", ".join(key.roles))
        connection.key = key

    def cut_revoked(self, connections: Connections, now_ms: int) -> None:
        """Ends, from time to time, the connections whose key was revoked, or is another by now. They hear nothing more:
        held pulls, checks of transactions and members of groups end with them."""
        if self._keys is None or now_ms < self._revoked_at:
            return
        self._revoked_at = now_ms + REVOKED_EVERY_MS
        held = {each: each.key for each in connections if each.key is not None}
        gone = self._keys.revoked(set(held.values()))
        for connection, key in held.items():
            if key in gone:
                connections.end(connection, Ending.REVOKED, f"its key {key.name!r} was revoked")

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


def _is_signed(request: Command, secret: str) -> bool:
    return hmac.compare_digest(signature(request, secret), request.fields.get(SIGNATURE, "").encode())


def roles_for(code: int) -> frozenset[str]:
    """Who may ask for it: one of these."""
    if code in _EVERYBODY:
        return frozenset({PRODUCER, CONSUMER, ADMIN})
    role = PRODUCER if code in _PRODUCERS else CONSUMER if code in _CONSUMERS else ADMIN
    return frozenset({role, ADMIN})
