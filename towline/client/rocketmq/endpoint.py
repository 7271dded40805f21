"""The endpoint of a RocketMQ cluster, or of one broker of it.

rocketmq://HOST:PORT[;HOST:PORT...][/BROKER][?acl=FILE&ca=FILE]

The addresses are those of name servers. FILE of `acl` holds two lines, `accessKey: NAME` and `secretKey: SECRET`, as
mqadmin's tools.yml does. With `ca`, a file of certificates in PEM, every connection is TLS, and who answers has to show
a certificate that one of these vouches for; a host is not compared with the name in it, as in RocketMQ's own clients.
"""

import re
import ssl
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from towline.errors import InvalidEndpoint
from towline.link.endpoints import parse

PREFIX: Final = "rocketmq://"
_OPTIONS: Final = frozenset({"acl", "ca"})
_PAIR: Final = re.compile(r"""\s*(accessKey|secretKey)\s*:\s*["']?([^"'\s]+)["']?\s*""")


@dataclass(frozen=True, slots=True)
class Credentials:
    """What requests are signed with."""

    access_key: str
    secret_key: str


@dataclass(frozen=True)
class RocketmqEndpoint:
    """`broker` "": of the whole cluster."""

    name_servers: tuple[tuple[str, int], ...]
    broker: str
    options: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, text: str) -> "RocketmqEndpoint":
        """The endpoint in a text. Raises InvalidEndpoint."""
        rest, _, asked = text.removeprefix(PREFIX).partition("?")
        hosts, _, broker = rest.partition("/")
        options = tuple(sorted(parse_qsl(asked)))
        unknown = {name for name, _ in options} - _OPTIONS
        if unknown or (asked and not options):
            raise InvalidEndpoint(
                text, f"of options it has {', '.join(sorted(unknown)) or asked}; acl and ca are known"
            )
        if "/" in broker or "," in text:
            raise InvalidEndpoint(text, "write rocketmq://HOST:PORT;HOST:PORT/BROKER, name servers with ; between them")
        known = [parse(f"tcp://{each}") for each in hosts.split(";")]
        return cls(tuple((each.host, each.port) for each in known), broker, options)

    def of(self, broker: str) -> str:
        """The text of the endpoint of one broker."""
        hosts = ";".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.name_servers)
        options = "&".join(f"{name}={value}" for name, value in self.options)
        return f"{PREFIX}{hosts}/{broker}" + (f"?{options}" if options else "")

    @cached_property
    def credentials(self) -> Credentials | None:
        """None where requests are not signed. Raises InvalidEndpoint for a file that holds none."""
        path = dict(self.options).get("acl")
        if path is None:
            return None
        try:
            lines = Path(path).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidEndpoint(path, f"the file of keys cannot be read: {error}") from None
        found = {pair[1]: pair[2] for pair in map(_PAIR.fullmatch, lines) if pair is not None}
        if len(found) != 2:
            raise InvalidEndpoint(path, "a file of keys has the lines `accessKey: NAME` and `secretKey: SECRET`")
        return Credentials(found["accessKey"], found["secretKey"])

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        """None for plain TCP. Raises InvalidEndpoint for a file that holds no certificates."""
        path = dict(self.options).get("ca")
        if path is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        try:
            context.load_verify_locations(path)
        except (OSError, ssl.SSLError) as error:
            raise InvalidEndpoint(path, f"the file of certificates cannot be read: {error}") from None
        return context
