"""The ports of a node as its settings give them: what those are that nobody gave, and what cannot stand together."""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Final

from .settings_model import LISTEN_PORT, TlsMode

OF_CLIENTS: Final = ("listen_port", "fast_listen_port", "name_server_port")  # where `remoting` listens
_GIVEN_FIRST: Final = ("ha_listen_port", "metrics_port", "rocketmq_ha_port", *OF_CLIENTS)
_FAST_BELOW: Final = 2  # where a broker of RocketMQ asks its master for topics, whatever anybody tells it
_YES: Final = ("true", "t", "yes", "y", "on", "1")  # a switch, as pydantic reads it


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def defaults_of_ports(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those that follow from what was given, and are not the defaults of the model. `given` is not checked yet."""
    found: dict[str, Any] = {}
    if str(given.get("listen_port", LISTEN_PORT)) != str(LISTEN_PORT):  # of a second node of the machine, or of none
        found = {"fast_listen_port": 0, "name_server_port": 0}
    if (fast := _fast_port(given)) is not None:
        found["fast_listen_port"] = fast
    if not is_open_to_all(given):
        found["tls_server_mode"] = TlsMode.ENFORCING
    return found


def _fast_port(given: Mapping[str, Any]) -> int | None:
    """Where slaves of RocketMQ ask; None without them, or where no port is 2 below."""
    if str(given.get("rocketmq_ha_port", 0)) == "0":
        return None
    try:
        port = int(str(given.get("listen_port", LISTEN_PORT)))
    except ValueError:  # it is refused by its own name
        return None
    return port - _FAST_BELOW if port > _FAST_BELOW else None


def is_open_to_all(given: Mapping[str, Any]) -> bool:
    """Whether clients may come without TLS: on loopback, or where it is said that anybody may. Of settings, or of what
    was given for them."""
    beyond = not is_loopback(str(given.get("listen_host", "127.0.0.1")))
    return not beyond or str(given.get("insecure")).lower() in _YES


def broken_ports(settings: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """(keys, why they cannot stand together). The first of them that was given is the one to blame."""
    enforced = settings["tls_server_mode"] is TlsMode.ENFORCING
    if settings["listen_port"] and not enforced and not is_open_to_all(settings):
        why = "beyond loopback clients come over TLS, since signatures hide nothing: leave it out, or set insecure=true"
        yield ("tls_server_mode",), why
    for key in ("name_server_port", "fast_listen_port"):
        if settings[key] and not settings["listen_port"]:
            yield (key,), "needs listen_port: that is where routes lead"
    if settings["rocketmq_ha_port"]:
        if not settings["listen_port"]:
            yield (
                ("rocketmq_ha_port",),
                "needs listen_port: that is where a slave of RocketMQ asks for topics and groups",
            )
        elif settings["fast_listen_port"] != settings["listen_port"] - _FAST_BELOW:
            why = "slaves of RocketMQ ask 2 below listen_port for topics, whatever they are told: leave it out"
            yield ("fast_listen_port", "rocketmq_ha_port"), why
    elif settings["rocketmq_ha_acks"]:
        yield ("rocketmq_ha_acks",), "needs rocketmq_ha_port: that is where the brokers that puts wait for connect"
    if settings["rocketmq_ha_acks"] and not settings["rocketmq_ha_from_oldest"]:
        why = "needs rocketmq_ha_from_oldest=true: a broker that begins with the last segment lacks what is before"
        yield ("rocketmq_ha_acks", "rocketmq_ha_from_oldest"), why
    ports = {key: settings[key] for key in _GIVEN_FIRST if settings[key]}
    twice = tuple(key for key, port in ports.items() if list(ports.values()).count(port) > 1)
    if twice:
        yield twice, f"{' and '.join(twice)} must differ"
