"""Endpoints of a node: for each service a socket in the runtime directory, and TCP unless its port is 0; for clients of
`remoting` TCP alone."""

from typing import Final

from towline.places import Runtime
from towline.runtime.ports import is_loopback, why_no_clients
from towline.runtime.settings import Settings
from towline.runtime.settings_model import TlsMode

from .duties import takes_clients

_ANYWHERE: Final = ("0.0.0.0", "*", "::", "[::]")


def endpoints_of(settings: Settings, runtime: Runtime, role: str) -> dict[str, list[str]]:
    """Service name -> ZeroMQ endpoints, the local one first. A slave has `serve` and, for its peers, `ha`."""
    ports = {"serve": settings.serve_port}
    if role == "master":
        ports |= {"put": settings.put_port, "ha": settings.ha_listen_port, "schedule": settings.schedule_port}
    else:  # alone with its master it is asked by nobody, and may have a port that its master has too
        ports |= {"ha": settings.ha_listen_port if settings.ha_peers else 0}
    return {service: listening(settings.listen_host, runtime, service, port) for service, port in ports.items()}


def shown_endpoints(settings: Settings, runtime: Runtime, role: str) -> dict[str, list[str]]:
    """The same for people and commands, those of `remoting` in front where the node has them."""
    addresses = settings.remoting_addresses if takes_clients(role, settings) else []
    clients = {"remoting": [f"tcp://{host}:{port}" for host, port in addresses]} if addresses else {}
    return clients | endpoints_of(settings, runtime, role)


def why_no_remoting(settings: Settings, role: str) -> str:
    """Why a node has no port for clients though its role has one, and what to set; "" where nothing is to be said."""
    return why_no_clients(dict(settings)) if takes_clients(role, settings) else ""


def refusal_endpoints(settings: Settings, runtime: Runtime) -> list[str]:
    """Endpoints where a slave refuses producers; without peers its master may have the same port, as above."""
    return listening(settings.listen_host, runtime, "put", settings.put_port if settings.ha_peers else 0)


def reachable(settings: Settings, runtime: Runtime, role: str) -> dict[str, list[str]]:
    """The same as other machines see them: no local ones, and a host that can be connected to."""
    host = settings.listen_host
    own = settings.peers.get(settings.broker_id)
    if host in _ANYWHERE and own is not None:
        host = own.rpartition(":")[0]
    seen: dict[str, list[str]] = {"put": [], "serve": [], "ha": []} | endpoints_of(settings, runtime, role)
    found = {
        service: [one.replace(f"//{settings.listen_host}:", f"//{host}:") for one in endpoints if one.startswith("tcp")]
        for service, endpoints in seen.items()
    }
    read = settings.slave_read_enable and bool(settings.ha_peers)  # a slave alone with its master does not listen there
    if settings.listen_port and (role == "master" or read):
        scheme = "tls" if settings.tls_server_mode is TlsMode.ENFORCING else "tcp"
        found["remoting"] = [f"{scheme}://{_of_clients(settings.broker_ip1, host)}:{settings.listen_port}"]
    return found


def _of_clients(address: str, host: str) -> str:
    """The address that is set for clients; where none is, that at which other machines find the node."""
    return host if is_loopback(address) and not is_loopback(host) and host not in _ANYWHERE else address


def listening(host: str, runtime: Runtime, service: str, port: int) -> list[str]:
    local = [f"ipc://{runtime.socket(service)}"]
    return local + ([f"tcp://{host}:{port}"] if port else [])
