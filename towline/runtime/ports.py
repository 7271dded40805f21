"""The ports of a node as its settings give them: what those are that nobody gave, and what cannot stand together."""

import ipaddress
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

from .settings_model import FAST_LISTEN_PORT, HA_PORT, LISTEN_PORT, NAME_SERVER_PORT, PUT_PORT, TlsMode

OF_CLIENTS: Final = ("listen_port", "fast_listen_port", "name_server_port")  # where `remoting` listens
_GIVEN_FIRST: Final = ("serve_port", "ha_listen_port", "put_port", "schedule_port", *OF_CLIENTS)
_DEFAULTS: Final = {
    "ha_listen_port": HA_PORT,
    "put_port": PUT_PORT,
    "listen_port": LISTEN_PORT,
    "fast_listen_port": FAST_LISTEN_PORT,
    "name_server_port": NAME_SERVER_PORT,
}
_TLS: Final = (
    "TLS, since signatures hide nothing: set tls_server_cert_path, tls_server_key_path and "
    "tls_server_mode=ENFORCING, or pass --insecure"
)
_YES: Final = ("true", "t", "yes", "y", "on", "1")  # a switch, as pydantic reads it


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def defaults_of_ports(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those that follow from what was given, and are not the defaults of the model. `given` is not checked yet."""
    found: dict[str, Any] = {}
    listen = given.get("listen_port", LISTEN_PORT if may_take_clients(given) else 0)
    if str(listen) != str(LISTEN_PORT):  # of a second node of the machine, or of none
        found = {"listen_port": listen, "fast_listen_port": 0, "name_server_port": 0}
    if str(given.get("serve_port", "")).isdecimal():  # anything else is refused where it stands
        found["schedule_port"] = _port_after(int(given["serve_port"]), {**_DEFAULTS, **found, **given})
    return found


def _port_after(serve_port: int, ports: Mapping[str, Any]) -> int:
    """The first free one after the port for reads; none where that has none."""
    taken = {str(ports[key]) for key in _DEFAULTS}
    return next(port for port in count(serve_port + 1) if str(port) not in taken) if serve_port else 0


def may_take_clients(given: Mapping[str, Any]) -> bool:
    """Whether RocketMQ's clients may be listened to: on loopback, over TLS alone, or where it is said that anybody may.
    Of settings, or of what was given for them."""
    if is_loopback(str(given.get("listen_host", "127.0.0.1"))):
        return True
    if str(given.get("insecure")).lower() in _YES:
        return True
    mode = given.get("tls_server_mode")
    encrypted = mode in (TlsMode.ENFORCING, TlsMode.ENFORCING.value)
    return bool(encrypted and given.get("tls_server_cert_path") and given.get("tls_server_key_path"))


def why_no_clients(settings: Mapping[str, Any]) -> str:
    """Why a node that is reached from beyond loopback has no port for clients, and what to set; "" where it has one,
    and where it may have one and nobody wants it."""
    if settings["listen_port"] or may_take_clients(settings):
        return ""
    return f"the remoting port is off (listen_port 0): beyond loopback it takes {_TLS}"


def broken_ports(settings: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """(keys, why they cannot stand together). The first of them that was given is the one to blame."""
    if settings["listen_port"] and not may_take_clients(settings):
        yield ("listen_port",), f"beyond loopback takes {_TLS}"
    for key in ("name_server_port", "fast_listen_port"):
        if settings[key] and not settings["listen_port"]:
            yield (key,), "needs listen_port: that is where routes lead"
    ports = {key: settings[key] for key in _GIVEN_FIRST if settings[key]}
    twice = tuple(key for key, port in ports.items() if list(ports.values()).count(port) > 1)
    if twice:
        yield twice, f"{' and '.join(twice)} must differ"
