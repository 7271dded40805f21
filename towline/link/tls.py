"""TLS of the connecting side: what is trusted, why it fails, and the bytes of one connection.

    tls://HOST:PORT[?ca=FILE][&cert=FILE][&key=FILE]

Who answers has to show a certificate for HOST, that the system's certificates vouch for, or those of `ca`. `cert` and
`key` are our own, for who asks for one; the key may stand in the file of `cert`. All are PEM.

With a key file of a ring `tcp://HOST:PORT` is TLS too: who answers has to show the ring's certificate, wherever it is.
"""

import logging
import socket
import ssl
from pathlib import Path
from typing import Final

from towline.errors import InvalidEndpoint, LinkRefused, Remedy
from towline.format.wire.frames import Buffer
from towline.limits import KIB

from .endpoints import TLS, Endpoint
from .keys import RING_HOST, BadKeys, Key

SHAKE_S: Final = 10.0  # who takes longer for the handshake is given up
TLS_REFUSED: Final = "TLS"
_READ_SIZE: Final = 64 * KIB  # of the network, read at once
_FOR_ANOTHER: Final = "is not for {host!r}: write the address with a name that the certificate has"
_UNSOUND: Final = "is not made by the rules ({why}), at which Python looks from 3.13 on: it is to be made anew there"
_TROUBLES: Final = {  # of a certificate, by X509_V_ERR of OpenSSL
    **dict.fromkeys(range(80, 94), _UNSOUND),
    9: "is not valid yet: look at the clocks of both machines",
    10: "has expired: it is to be renewed there",
    62: _FOR_ANOTHER,
    64: _FOR_ANOTHER,
}
_CLOCKS: Final = (9, 10)
_UNTRUSTED: Final = "is not trusted ({why}): give what vouches for it by ?ca=FILE"
_OTHER_RING: Final = "is not the one of our key's ring: use a key that `towline keys new` made in the ring of that node"
_PLAIN: Final = "write tcp:// where that is meant"
_NO_RING: Final = "leave the key file out where nobody wants one"
_NO_OFFER: Final = (
    "tls_server_cert_path, or write tcp:// for plain TCP",
    "keys_dir, or leave the key file out",
)
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST"})
_ABOUT_OURS: Final = ("CERTIFICATE", "UNKNOWN_CA")  # in the name of an alert
_Stamp = tuple[tuple[str, int, int], ...]

log = logging.getLogger(__name__)
_of_rings: Final[dict[str, ssl.SSLContext]] = {}
_contexts: Final[dict[tuple[tuple[str, str], ...], tuple[_Stamp, ssl.SSLContext]]] = {}


class TlsRefused(LinkRefused, remedy=Remedy.FIX_SETTINGS):
    """TLS does not come about, for a reason that time alone does not change."""

    advice = "look at the address, and at the certificates of both sides"


def client_context(endpoint: Endpoint) -> ssl.SSLContext:
    """As the files are now; where a new one is of no use, as they were. Raises InvalidEndpoint."""
    try:
        stamp = _stamp(endpoint)
        known = _contexts.get(endpoint.options)
        if known is None or known[0] != stamp:
            _contexts[endpoint.options] = stamp, _read(dict(endpoint.options))
    except (OSError, ValueError) as error:
        if endpoint.options not in _contexts:
            raise InvalidEndpoint(str(endpoint), f"a file of its certificates is of no use: {error}") from None
        log.warning("the certificates stay what they were: %s", error)
    return _contexts[endpoint.options][1]


def check(endpoint: Endpoint) -> None:
    """Raises InvalidEndpoint for one by which no TLS can begin."""
    if endpoint.scheme == TLS:
        ClientTls(endpoint)


def ring_context(certificate: str) -> ssl.SSLContext:
    """For nodes that show this certificate (PEM), and no others. Raises BadKeys."""
    known = _of_rings.get(certificate)
    if known is None:
        known = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        known.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            known.load_verify_locations(cadata=certificate)
        except ssl.SSLError as error:
            raise BadKeys("the key file", f"its certificate is of no use: {error}") from None
        _of_rings[certificate] = known
    return known


class ClientTls:
    """Of one connection, whose socket never waits."""

    @classmethod
    def begun(cls, endpoint: Endpoint, key: Key | None) -> "ClientTls | None":
        """As the endpoint and the key want it; None where that is plain TCP. Raises InvalidEndpoint, BadKeys."""
        return cls(endpoint, key) if endpoint.scheme == TLS or (key is not None and key.certificate) else None

    def __init__(self, endpoint: Endpoint, key: Key | None = None) -> None:
        """Raises InvalidEndpoint, BadKeys."""
        self._endpoint = endpoint
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._by_ring = endpoint.scheme != TLS
        if self._by_ring:
            assert key is not None
            context, host = ring_context(key.certificate), RING_HOST
        else:
            context, host = client_context(endpoint), endpoint.host
        try:
            self._tls = context.wrap_bio(self._came, self._goes, server_hostname=host)
        except ValueError as error:
            raise InvalidEndpoint(str(endpoint), f"no certificate can be for this host: {error}") from None

    def shake(self, sock: socket.socket) -> bool:
        """Goes on with the handshake; whether it is done. What is to be said is `outgoing`. Raises OSError."""
        while True:
            try:
                self._tls.do_handshake()
                return True
            except ssl.SSLWantReadError:
                if self._goes.pending or not self._take(sock):
                    return False

    def recv_into(self, sock: socket.socket, room: memoryview) -> int:
        """Like a socket's: 0 at the end. Nothing is left here when it raises BlockingIOError. Raises OSError."""
        while True:
            try:
                return self._tls.read(len(room), room)  # type: ignore[arg-type,return-value]
            except ssl.SSLWantReadError:
                if not self._take(sock):
                    raise BlockingIOError from None
            except ssl.SSLZeroReturnError:
                return 0

    def encrypt(self, part: Buffer) -> None:
        """To be sent: it becomes `outgoing`. Raises OSError."""
        rest = memoryview(part)
        while rest:
            rest = rest[self._tls.write(rest) :]

    def outgoing(self) -> bytes:
        """What is to be sent before anything else: of handshakes, and alerts, too."""
        return self._goes.read()

    def end(self) -> None:
        """Says good-bye (close_notify), as `outgoing`."""
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):  # it waits for the other side's, which nobody does
            return

    def refusal(self, error: OSError) -> TlsRefused | None:
        """What an error is to a person; None where the connection broke, which may pass."""
        host = self._endpoint.host
        if isinstance(error, ssl.SSLCertVerificationError):
            trouble = _TROUBLES.get(error.verify_code, _UNTRUSTED).format(host=host, why=error.verify_message)
            other = self._by_ring and error.verify_code not in _CLOCKS
            return TlsRefused(TLS_REFUSED, f"the certificate of {host} {_OTHER_RING if other else trouble}")
        if not isinstance(error, ssl.SSLError) or isinstance(error, (ssl.SSLEOFError, ssl.SSLSyscallError)):
            return None
        reason = error.reason or str(error)
        if reason in _NO_TLS:
            why = f"what listens there does not speak TLS: {_NO_RING if self._by_ring else _PLAIN}, or its listen_port"
        elif reason == "SSLV3_ALERT_HANDSHAKE_FAILURE":
            why = f"it offers no TLS that we take: on a node set {_NO_OFFER[self._by_ring]}"
        elif "ALERT" in reason and any(word in reason for word in _ABOUT_OURS):
            why = f"it does not take our certificate ({reason}): give one that it trusts by ?cert=FILE&key=FILE"
        else:
            why = f"the handshake fails: {reason}"
        return TlsRefused(TLS_REFUSED, f"{host}:{self._endpoint.port}: {why}")

    def _take(self, sock: socket.socket) -> bool:
        """Whether more has come. Raises OSError, at the end of the connection too."""
        try:
            data = sock.recv(_READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            raise ConnectionResetError("the connection has ended")
        self._came.write(data)
        return True


def _stamp(endpoint: Endpoint) -> _Stamp:
    """Of the files, by which a change is noticed. Raises OSError."""
    found = [(path, Path(path).stat()) for _, path in endpoint.options]
    return tuple((path, each.st_mtime_ns, each.st_size) for path, each in found)


def _read(files: dict[str, str]) -> ssl.SSLContext:
    """Raises OSError, ValueError."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=files.get("ca"))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if "cert" in files:
        context.load_cert_chain(files["cert"], files.get("key"), password=_no_password)
    return context


def _no_password() -> str:
    raise ValueError("the key is locked by a password, for which nobody can be asked")
