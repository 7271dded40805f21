"""Where a node listens: for each service a socket in the runtime directory, and TCP unless its port is 0."""

from towline.places import Runtime
from towline.runtime.settings import Settings


def endpoints_of(settings: Settings, runtime: Runtime, role: str) -> dict[str, list[str]]:
    """Service name -> ZeroMQ endpoints, the local one first. A slave has `serve` alone."""
    ports = {"serve": settings.serve_port}
    if role == "master":
        ports |= {"put": settings.listen_port, "ha": settings.ha_listen_port, "schedule": settings.schedule_port}
    return {service: listening(settings.listen_host, runtime, service, port) for service, port in ports.items()}


def listening(host: str, runtime: Runtime, service: str, port: int) -> list[str]:
    local = [f"ipc://{runtime.socket(service)}"]
    return local + ([f"tcp://{host}:{port}"] if port else [])
