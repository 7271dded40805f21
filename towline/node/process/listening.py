"""Why a node cannot listen where its settings say: which setting names the address, and which process has the port."""

from errno import EACCES, EADDRINUSE
from typing import Final

import psutil

from towline.errors import CannotListen
from towline.link.endpoints import Endpoint, parse
from towline.runtime.settings import Settings

_PORTS: Final = ("listen_port", "serve_port", "ha_listen_port", "schedule_port")
_OF_A_PORT: Final = (EADDRINUSE, EACCES)  # anything else is about the host


def explained(error: CannotListen, settings: Settings) -> CannotListen:
    """The same with what an operator has to know to mend it."""
    endpoint = parse(error.endpoint)
    holder = _holder_of(endpoint.port) if error.number == EADDRINUSE and endpoint.port else ""
    return CannotListen(error.endpoint, error.number, error.reason, holder, _setting_of(endpoint, error, settings))


def _setting_of(endpoint: Endpoint, error: CannotListen, settings: Settings) -> str:
    if endpoint.scheme != "tcp":
        return ""
    if error.number not in _OF_A_PORT:
        return "listen_host"
    return next((key for key in _PORTS if getattr(settings, key) == endpoint.port), "")


def _holder_of(port: int) -> str:
    """The process that listens there, as far as the system tells: other users' processes it may not name."""
    try:
        found = psutil.net_connections("tcp")
        pids = {one.pid for one in found if one.status == psutil.CONN_LISTEN and one.laddr.port == port}
        return ", ".join(f"process {pid} ({psutil.Process(pid).name()})" for pid in sorted(pids - {None}))
    except psutil.Error:
        return ""
