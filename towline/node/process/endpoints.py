"""Endpoints of a node: for each service a socket in the runtime directory, and TCP unless its port is 0."""

from typing import Final

from towline.places import Runtime
from towline.runtime.settings import Settings

_ANYWHERE: Final = ("0.0.0.0", "*", "::", "[::]")


def endpoints_of(settings: Settings, runtime: Runtime, role: str) -> dict[str, list[str]]:
    """Service name -> ZeroMQ endpoints, the local one first. A slave has `serve` and, for its peers, `ha`."""
    ports = {"serve": settings.serve_port}
    if role == "master":
        ports |= {"put": settings.listen_port, "ha": settings.ha_listen_port, "schedule": settings.schedule_port}
    else:  # alone with its master it is asked by nobody, and may have a port that its master has too
        ports |= {"ha": settings.ha_listen_port if settings.ha_peers else 0}
    return {service: listening(settings.listen_host, runtime, service, port) for service, port in ports.items()}


def refusal_endpoints(settings: Settings, runtime: Runtime) -> list[str]:
    """Endpoints where a slave refuses producers; without peers its master may have the same port, as above."""
    return listening(settings.listen_host, runtime, "put", settings.listen_port if settings.ha_peers else 0)


def reachable(settings: Settings, runtime: Runtime, role: str) -> dict[str, list[str]]:
    """The same as other machines see them: no local ones, and a host that can be connected to."""
    host = settings.listen_host
    own = settings.peers.get(settings.broker_id)
    if host in _ANYWHERE and own is not None:
        host = own.rpartition(":")[0]
    seen: dict[str, list[str]] = {"put": [], "serve": [], "ha": []} | endpoints_of(settings, runtime, role)
    read = settings.slave_read_enable and bool(settings.ha_peers)  # a slave alone with its master does not listen there
    if settings.remoting_port and (role == "master" or read):
        seen["remoting"] = [f"tcp://{settings.broker_ip1}:{settings.remoting_port}"]
    return {
        service: [one.replace(f"//{settings.listen_host}:", f"//{host}:") for one in endpoints if one.startswith("tcp")]
        for service, endpoints in seen.items()
    }


def listening(host: str, runtime: Runtime, service: str, port: int) -> list[str]:
    local = [f"ipc://{runtime.socket(service)}"]
    return local + ([f"tcp://{host}:{port}"] if port else [])
