"""Authentication of nodes at each other's TCP ports, by the CURVE key of their ring (RFC 27, ZAP).

Sockets in the runtime directory (ipc, mode 0700) need none. A TCP endpoint takes only encrypted connections, and only
of who has the nodes' own key.
"""

from typing import Final

import zmq
from zmq.utils import z85

from .context import Context, Socket
from .keys import AuthorizedKeys

ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"  # of each context: libzmq asks there
DOMAIN: Final = b"towline"
_VERSION: Final = b"1.0"
_KEY_SIZE: Final = 32


class CurveAuth:
    """Answers libzmq's questions whether a key may connect (ZAP). One for each context, used by the server's thread."""

    def __init__(self, context: Context, keys: AuthorizedKeys) -> None:
        self._server = keys.server
        self.socket: Socket = context.socket(zmq.ROUTER)  # a REP would stick after one malformed question
        self.socket.bind(ZAP_ENDPOINT)

    def protect(self, socket: Socket) -> None:
        """Later binds of `socket` accept only the nodes' own key."""
        socket.set(zmq.ZAP_DOMAIN, DOMAIN)
        socket.set(zmq.CURVE_SERVER, 1)
        socket.set(zmq.CURVE_SECRETKEY, self._server.secret.encode())

    def answer(self) -> bool:
        """Answers one question of libzmq; False when there is none."""
        try:
            parts = self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        split = parts.index(b"") + 1
        envelope, question = parts[:split], parts[split:]
        key = _key_of(question)
        allowed = key == self._server.public
        status = [b"200", b"OK", b""] if allowed else [b"400", b"not the key of this ring's nodes", b""]
        self.socket.send_multipart([*envelope, _VERSION, question[1], *status, b""])
        return True

    def close(self) -> None:
        self.socket.close(linger=0)


def _key_of(question: list[bytes]) -> str | None:
    if len(question) != 7 or question[0] != _VERSION or question[5] != b"CURVE" or len(question[6]) != _KEY_SIZE:
        return None
    return z85.encode(question[6]).decode()
