"""Authentication of TCP peers by their CURVE keys and the roles of each key (RFC 27, ZAP).

Sockets in the runtime directory (ipc, mode 0700) need none. A TCP endpoint takes only encrypted connections, and only
of keys in the keys directory.
"""

from typing import Any, Final

import zmq
from zmq.utils import z85

from towline.errors import LinkRefused

from .context import Context, Socket
from .keys import AuthorizedKeys
from .native import ReceivedPart

ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"  # of each context: libzmq asks there
DOMAIN: Final = b"towline"
ROLE_REFUSED: Final = "ROLE"
_VERSION: Final = b"1.0"
_KEY_SIZE: Final = 32


class CurveAuth:
    """Answers libzmq's questions whether a key may connect (ZAP). One for each context, used by the server's thread."""

    def __init__(self, context: Context, keys: AuthorizedKeys, roles: frozenset[str]) -> None:
        """`roles` are those that have something to do here, whatever else a key is for."""
        self.keys = keys
        self._roles = roles
        self.refused = 0
        self.socket: Socket = context.socket(zmq.ROUTER)  # a REP would stick after one malformed question
        self.socket.bind(ZAP_ENDPOINT)

    def protect(self, socket: Socket) -> None:
        """Later binds of `socket` accept only keys of the keys directory."""
        socket.set(zmq.ZAP_DOMAIN, DOMAIN)
        socket.set(zmq.CURVE_SERVER, 1)
        socket.set(zmq.CURVE_SECRETKEY, self.keys.server.secret.encode())

    def answer(self) -> bool:
        """Answers one question of libzmq; False when there is none."""
        try:
            parts = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        split = parts.index(b"") + 1
        envelope, question = parts[:split], parts[split:]
        key = _key_of(question)
        allowed = key is not None and self.keys.knows(key)
        self.refused += not allowed
        status = [b"200", b"OK", (key or "").encode()] if allowed else [b"400", b"unknown key", b""]
        self.socket.send_multipart([*envelope, _VERSION, question[1], *status, b""])
        return True

    def check(self, facts: dict[str, Any], frame: ReceivedPart) -> str:
        """The key of a greeting's connection, "" for a local one.

        Raises LinkRefused for a role that the key does not have.
        """
        key = key_of_frame(frame)
        role = facts.get("role")
        if key:
            known = self.keys.roles_of(key)
            may = sorted(known & self._roles)
            if role not in may:  # a list, for `role` is whatever the peer wrote
                may_be = ", ".join(may or sorted(known)) or "nothing: it was revoked"
                elsewhere = "" if may or not known else ", at other ports"
                refused = f"your key may not connect to this port as {role!r}; it is for {may_be}{elsewhere}"
                raise LinkRefused(ROLE_REFUSED, refused)
        return key

    def close(self) -> None:
        self.socket.close(linger=0)


def key_of_frame(frame: ReceivedPart) -> str:
    """The public key of the connection that a frame came on; "" for a connection without CURVE."""
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return ""


def _key_of(question: list[bytes]) -> str | None:
    if len(question) != 7 or question[0] != _VERSION or question[5] != b"CURVE" or len(question[6]) != _KEY_SIZE:
        return None
    return z85.encode(question[6]).decode()
