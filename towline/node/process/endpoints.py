"""Endpoints of a node: a socket in the runtime directory for each process that is asked, and TCP for clients, whom
`remoting` answers, and for other nodes (`ha`), unless the port is 0."""

from typing import Final

from towline.link.endpoints import tcp_endpoint
from towline.places import Runtime
from towline.runtime.ports import is_loopback
from towline.runtime.settings import Settings
from towline.runtime.settings_model import TlsMode

LOCAL: Final = ("put", "serve", "schedule")  # asked over the runtime directory's sockets alone
REMOTING: Final = "remoting"
HA: Final = "ha"
METRICS: Final = "metrics"
ROCKETMQ_HA: Final = "rocketmq_ha"
_OF_A_SLAVE: Final = ("serve",)
_ANYWHERE: Final = ("0.0.0.0", "*", "::", "[::]")


def local_endpoint(runtime: Runtime, service: str) -> str:
    """The socket of a process in the runtime directory."""
    return f"ipc://{runtime.socket(service)}"


def ha_endpoints(settings: Settings, runtime: Runtime, role: str) -> list[str]:
    """Where other nodes ask, the local one first. A slave alone with its master is asked by nobody, and may have a port
    that its master has too."""
    port = settings.ha_listen_port if role == "master" or settings.ha_peers else 0
    return [local_endpoint(runtime, HA)] + ([f"tcp://{settings.listen_host}:{port}"] if port else [])


def endpoints_of(settings: Settings, runtime: Runtime, role: str) -> dict[str, list[str]]:
    """Service -> endpoints, for people and commands; those of clients in front where the node has them."""
    clients = [f"tcp://{host}:{port}" for host, port in settings.remoting_addresses]
    local = LOCAL if role == "master" else _OF_A_SLAVE
    found = {REMOTING: clients} if clients else {}
    found |= {service: [local_endpoint(runtime, service)] for service in local}
    found |= {HA: ha_endpoints(settings, runtime, role)}
    if settings.rocketmq_ha_port and role == "master":
        found[ROCKETMQ_HA] = [tcp_endpoint(settings.rocketmq_ha_address, settings.rocketmq_ha_port)]
    if settings.metrics_port:
        found[METRICS] = [tcp_endpoint(settings.metrics_address, settings.metrics_port).replace("tcp", "http", 1)]
    return found


def reachable(settings: Settings, runtime: Runtime, role: str) -> dict[str, list[str]]:
    """Service -> endpoints as other machines see them: no local ones, and a host that can be connected to.

    Clients of a node with a key ring connect with TLS to `tcp://` by the ring's certificate, which their key file has.
    """
    host = settings.listen_host
    own = settings.peers.get(settings.broker_id)
    if host in _ANYWHERE and own is not None:
        host = own.rpartition(":")[0]
    of_nodes = [one for one in ha_endpoints(settings, runtime, role) if one.startswith("tcp")]
    found = {HA: [one.replace(f"//{settings.listen_host}:", f"//{host}:") for one in of_nodes]}
    if settings.listen_port and (role == "master" or settings.slave_read_enable):
        scheme = "tls" if settings.tls_server_mode is TlsMode.ENFORCING and settings.keys_dir is None else "tcp"
        at = tcp_endpoint(_of_clients(settings.broker_ip1, host), settings.listen_port)
        found[REMOTING] = [at.replace("tcp", scheme, 1)]
    return found


def _of_clients(address: str, host: str) -> str:
    """The address that is set for clients; where none is, that at which other machines find the node."""
    return host if is_loopback(address) and not is_loopback(host) and host not in _ANYWHERE else address
