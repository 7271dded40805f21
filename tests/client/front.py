"""A remoting port before a node in a thread: what comes in frames goes on to the node's socket, and back."""

import contextlib
import socket
import threading
from dataclasses import dataclass, field

import zmq
from zmq.utils.monitor import recv_monitor_message

from towline.format.remoting.command import decode, frame_size
from towline.format.remoting.wire_message import decode_message, encode_message

STEP_MS = 5


@dataclass
class Way:
    """One client's connection and its link to the node."""

    client: socket.socket
    link: zmq.Socket[bytes]
    monitor: zmq.Socket[bytes]
    came: bytearray = field(default_factory=bytearray)

    def close(self) -> None:
        self.client.close()
        self.link.disable_monitor()
        self.monitor.close(0)
        self.link.close(0)


class Front:
    """Listens at `port` from `start` to `stop`."""

    def __init__(self, port: int, endpoint: str) -> None:
        self._port, self._endpoint = port, endpoint
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._stop.clear()
        listening = socket.create_server(("127.0.0.1", self._port))
        self._thread = threading.Thread(target=self._run, args=(listening,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, listening: socket.socket) -> None:
        ways: list[Way] = []
        with zmq.Context() as context, listening:
            while not self._stop.is_set():
                poller = zmq.Poller()
                for each in (listening, *(part for way in ways for part in (way.client, way.link, way.monitor))):
                    poller.register(each, zmq.POLLIN)
                ready = {key for key, _ in poller.poll(STEP_MS)}
                if listening.fileno() in ready:
                    ways.append(self._way(context, listening.accept()[0]))
                for way in tuple(ways):
                    if not _serve(way, ready):
                        ways.remove(way)
                        way.close()
            for way in ways:
                way.close()

    def _way(self, context: "zmq.Context[zmq.Socket[bytes]]", client: socket.socket) -> Way:
        link = context.socket(zmq.DEALER)
        monitor = link.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        link.connect(self._endpoint)
        return Way(client, link, monitor)


def _serve(way: Way, ready: set[object]) -> bool:
    """Hands on what has come; False at the end of either side."""
    with contextlib.suppress(zmq.Again):
        while way.link in ready:
            parts = way.link.recv_multipart(zmq.NOBLOCK)
            way.client.sendall(b"".join(encode_message(parts, from_node=True)))
    if way.monitor in ready and recv_monitor_message(way.monitor):
        return False
    if way.client.fileno() not in ready:
        return True
    try:
        data = way.client.recv(1 << 20)
    except OSError:
        return False
    way.came += data
    while 0 < (size := frame_size(way.came)) <= len(way.came):
        way.link.send_multipart([bytes(part) for part in decode_message(decode(bytes(way.came[:size])).body)])
        del way.came[:size]
    return bool(data)
