"""HTTP of the metrics process: `/metrics` for Prometheus, `/live` and `/ready` for probes.

A thread for each connection, so that one who reads slowly keeps nobody waiting; figures are read by one at a time.
"""

import json
import logging
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any, Final

from prometheus_client.exposition import choose_encoder

from towline.errors import CannotListen
from towline.link.endpoints import tcp_endpoint
from towline.node.process.context import Node

from .collector import NodeCollector
from .looking import Look

CONNECTIONS_MAX: Final = 32
IDLE_S: Final = 120.0  # a connection on which nothing is asked so long is ended
_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"
_POLL_S: Final = 3600.0  # nobody ends the server but the process, which ends


class Web(ThreadingMixIn, HTTPServer):
    """Listens from the beginning on; answers once `begin` was called."""

    daemon_threads = True
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, node: Node, collector: NodeCollector) -> None:
        """Raises CannotListen."""
        host, port = node.settings.metrics_address.strip("[]"), node.settings.metrics_port
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.node, self.collector = node, collector
        self.reading = threading.Lock()
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        try:
            super().__init__((host, port), Handler)
        except OSError as error:
            why = error.strerror or str(error)
            raise CannotListen(tcp_endpoint(host, port), error.errno or 0, why) from None

    def server_bind(self) -> None:
        """Without the look for a name of this host that HTTPServer takes, which may ask the network."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def begin(self) -> None:
        threading.Thread(target=self.serve_forever, args=(_POLL_S,), name="metrics", daemon=True).start()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        self.node.log.debug("a connection of %s ended", client_address, exc_info=True)


class Handler(BaseHTTPRequestHandler):
    server: Web
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    wbufsize = -1  # head and body leave together: the body would wait for the other side's delayed acknowledgement
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        try:
            status, kind, body = self._answer(path)
        except Exception:  # files come and go under it: the next scrape may see more
            self.server.node.log.exception("%s cannot be answered", path)
            status, kind, body = HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, b"the node's log says why\n"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        if path == "/metrics":
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            with self.server.reading:
                return HTTPStatus.OK, kind, encode(self.server.collector)
        if path == "/live":
            alive = Look.at(self.server.node).is_alive
            return _status(alive), _JSON, _json({"live": alive})
        if path == "/ready":
            reasons = Look.at(self.server.node).not_ready
            return _status(not reasons), _JSON, _json({"ready": not reasons, "not_ready": reasons})
        return HTTPStatus.NOT_FOUND, _TEXT, b"/metrics, /live, /ready\n"

    def log_message(self, format: str, *args: Any) -> None:
        if self.server.node.log.isEnabledFor(logging.DEBUG):
            self.server.node.log.debug(format, *args)


def _status(good: bool) -> HTTPStatus:
    return HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE


def _json(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts).encode() + b"\n"
