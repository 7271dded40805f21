"""Addresses of the link: `ipc://<path>` on this machine, `tcp://<host>:<port>` anywhere.

Clients also have `tls://<host>:<port>` of a remoting port, and what begins with `rocketmq://`.
"""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlencode

from towline.errors import InvalidEndpoint

IPC_PATH_SIZE_MAX: Final = 107  # sun_path of Linux holds 108 bytes with the closing NUL
PORT_MAX: Final = 65_535
_PORT_DIGITS: Final = 10  # zeros in front may stand there; Python refuses to read thousands
ROCKETMQ: Final = "rocketmq"  # of name servers, for clients alone: `towline.client.rocketmq` reads the rest
TLS: Final = "tls"  # to a remoting port; `tls` has what its options mean
_OPTIONS: Final = ("ca", "cert", "key")
_FORMS: Final = "write ipc://PATH, tcp://HOST:PORT or HOST:PORT, or tls://HOST:PORT?ca=FILE for a remoting port"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address. `path` is set for ipc, and is all there is for rocketmq; `host` and `port` for tcp, whose port 0
    lets the kernel choose when binding, and for tls, which has `options` with the paths of files."""

    scheme: str
    path: str = ""
    host: str = ""
    port: int = 0
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        if self.scheme in ("ipc", ROCKETMQ):
            return f"{self.scheme}://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        options = f"?{urlencode(self.options, safe='/:')}" if self.options else ""
        return f"{self.scheme}://{host}:{self.port}{options}"

    @property
    def is_local(self) -> bool:
        """Whether nobody outside this machine can reach it."""
        if self.scheme == "ipc" or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse(text: str) -> Endpoint:
    """The endpoint a person or a setting named. Raises InvalidEndpoint with the part that is wrong."""
    scheme, mark, rest = text.strip().partition("://")
    if not mark:
        scheme, rest = "tcp", scheme
    if scheme == "ipc":
        return _ipc(text, rest)
    if scheme == "tcp":
        return _tcp(text, rest)
    if scheme == TLS:
        return _tls(text, rest)
    if scheme == ROCKETMQ:
        return Endpoint(ROCKETMQ, path=rest)
    raise InvalidEndpoint(text, f"{scheme}:// is not a transport of Towline; {_FORMS}")


def ipc_endpoint(runtime_dir: Path | str, name: str) -> str:
    """The endpoint of the process `name` in a runtime directory. Raises InvalidEndpoint when the path is too long."""
    path = str(Path(runtime_dir) / f"{name}.sock")
    return str(_ipc(f"ipc://{path}", path))


def tcp_endpoint(host: str, port: int) -> str:
    """`host` is a name, an IPv4 address, or an IPv6 address with or without brackets."""
    host = host.strip("[]")
    shown = f"[{host}]" if ":" in host else host
    return str(_tcp(f"{shown}:{port}", f"{shown}:{port}"))


def _ipc(text: str, path: str) -> Endpoint:
    size = len(path.encode())
    if not path.startswith("/"):
        raise InvalidEndpoint(text, "the path of an ipc endpoint must begin with /")
    if size > IPC_PATH_SIZE_MAX:
        raise InvalidEndpoint(text, f"its path has {size} bytes and a Unix socket's {IPC_PATH_SIZE_MAX} at most")
    if "\0" in path:
        raise InvalidEndpoint(text, "its path holds a NUL byte")
    return Endpoint("ipc", path=path)


def _tcp(text: str, rest: str) -> Endpoint:
    host, mark, port = rest.rpartition(":")
    if not mark or not host:
        raise InvalidEndpoint(text, f"it has no port; {_FORMS}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidEndpoint(text, "an IPv6 address stands in brackets, as in tcp://[::1]:10911")
    if not (port.isascii() and port.isdecimal() and len(port) <= _PORT_DIGITS) or int(port) > PORT_MAX:
        raise InvalidEndpoint(text, f"its port {port!r} is not a number from 0 to {PORT_MAX}")
    if not host or any(character.isspace() or character in "/;@" for character in host):
        raise InvalidEndpoint(text, f"{host!r} is no host name or address")
    return Endpoint("tcp", host=host, port=int(port))


def _tls(text: str, rest: str) -> Endpoint:
    where, mark, asked = rest.partition("?")
    known = _tcp(text, where)
    options = dict(parse_qsl(asked, keep_blank_values=True))
    if (mark and not options) or any(name not in _OPTIONS or not path for name, path in options.items()):
        raise InvalidEndpoint(text, f"behind the ? stands {asked!r}; {', '.join(_OPTIONS)} are known, each =FILE")
    if "key" in options and "cert" not in options:
        raise InvalidEndpoint(text, "it has a key without a cert")
    return Endpoint(TLS, host=known.host, port=known.port, options=tuple(sorted(options.items())))
