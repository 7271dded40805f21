"""TLS of remoting connections, on the same port: a client that begins with a handshake gets it, as with RocketMQ."""

import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from towline.errors import LinkRefused, MalformedFrame, Remedy, TowlineError
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import decode, frame_size
from towline.format.remoting.wire_message import encode_message
from towline.link.handshake import encode_refusal
from towline.link.keys import RING_HOST, certificate_of
from towline.link.tls import TLS_REFUSED
from towline.runtime.settings import Settings
from towline.runtime.settings_model import TlsMode

HANDSHAKE: Final = 0x16  # first byte of a TLS connection; a frame begins with 0 or 1
NO_TLS: Final = b"\x15\x03\x03\x00\x02\x02\x28"  # an alert of TLS 1.2: fatal, handshake_failure
_BY_RING: Final = "TOWLINE_KEYS=FILE, of a key of its ring"
_BY_EITHER: Final = f"{_BY_RING}, or write tls://HOST:PORT"
_PLAIN_MAX: Final = 64 * 1024  # bytes that are read out of a connection at once


class BadCertificate(TowlineError, remedy=Remedy.FIX_SETTINGS):
    """TLS cannot be offered with what is set."""

    certificate: str
    key: str
    why: str
    template = "the certificate {certificate} with the key {key} is of no use: {why}"
    advice = "set tls_server_cert_path and tls_server_key_path to PEM files that belong together; a ring has its own"


class BeginsWrong(ConnectionAbortedError):
    """A client that does not begin as it has to. `answer` tells it before its connection ends."""

    def __init__(self, why: str, answer: bytes) -> None:
        super().__init__(why)
        self.answer = answer


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Raises OSError where a file cannot be read or is of another kind."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    return context


@dataclass(frozen=True, slots=True)
class Security:
    """What connections have to begin with. Without a `context` nobody gets TLS; `enforced`: nobody goes without.
    `only_ring`: the certificate is the ring's, and for no host."""

    context: ssl.SSLContext | None = None
    enforced: bool = False
    only_ring: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """With the certificate that is set, and the ring's for who has a key file: one of the two is for everybody
        where there is no other. Raises BadCertificate."""
        certificate, key, mode = settings.tls_server_cert_path, settings.tls_server_key_path, settings.tls_server_mode
        own = _context_of(certificate, key) if certificate is not None and key is not None else None
        ring = None
        if settings.keys_dir is not None:
            ring = _context_of(certificate_of(settings.keys_dir), certificate_of(settings.keys_dir))
        if mode is TlsMode.DISABLED or (own or ring) is None:
            return cls()
        if own is not None and ring is not None:
            own.sni_callback = partial(_choose, ring)
        return cls(own or ring, mode is TlsMode.ENFORCING, only_ring=own is None)

    def begin(self, said: bytes) -> "Tls | None":
        """By what a client sends first. Raises BeginsWrong."""
        if said[0] == HANDSHAKE:
            if self.context is None:
                raise BeginsWrong("it begins with TLS, for which no certificate is set", NO_TLS)
            return Tls(self.context)
        if self.enforced:
            raise BeginsWrong("it begins without TLS, which is enforced", _only_tls(said, self.only_ring))
        return None


class Tls:
    """One connection's. Bytes of the network go in and out; no socket is touched."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_side=True)
        self._is_ready = False

    def decrypt(self, data: bytes) -> bytes:
        """What the client said. Raises ssl.SSLError, and ConnectionError where it has ended the connection and said
        nothing before."""
        self._came.write(data)
        said: list[bytes] = []
        try:
            if not self._is_ready:
                self._tls.do_handshake()
                self._is_ready = True
            while part := self._tls.read(_PLAIN_MAX):
                said.append(part)
        except ssl.SSLWantReadError:
            return b"".join(said)
        if said:  # a last word, which is answered as over plain TCP; what comes after it is the end of the connection
            return b"".join(said)
        raise ConnectionResetError("the client has ended TLS")

    def encrypt(self, data: bytes) -> None:
        """What is said to the client; `outgoing` has it then."""
        self._tls.write(data)

    def outgoing(self) -> bytes:
        """What is to be sent: of handshakes too."""
        return self._goes.read()


def _context_of(certificate: Path, key: Path) -> ssl.SSLContext:
    """Raises BadCertificate."""
    try:
        return server_context(certificate, key)
    except (OSError, ValueError) as error:
        raise BadCertificate(str(certificate), str(key), str(error)) from None


def _choose(ring: ssl.SSLContext, tls: ssl.SSLObject, host: str | None, _: ssl.SSLContext) -> None:
    """By the host that a client says it connects to."""
    if host == RING_HOST:
        tls.context = ring


def _only_tls(said: bytes, only_ring: bool) -> bytes:
    """For clients of ours, who learn by it what to write; others are told nothing."""
    try:
        size = frame_size(said)
        if not 0 < size <= len(said) or decode(said[:size]).code != RequestCode.TOWLINE:
            return b""
    except MalformedFrame:
        return b""
    refused = LinkRefused(TLS_REFUSED, f"this port takes TLS only: {_BY_RING if only_ring else _BY_EITHER}")
    return b"".join(encode_message(encode_refusal(refused), from_node=True))
