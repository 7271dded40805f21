"""A client that takes what it can get of a port: `python -m tests.processes.flooding KIND ROLE PLACE SECONDS`.

PLACE is a TCP port, or the path of a socket. It shakes hands and greets, then sends as fast as the port takes and reads
nothing. Cut off, it comes again. KIND is what it sends: `parts` of a message that never ends, large or `empty`, or
`requests` that are valid. At the end it says how often it was cut off, and how many bytes it got rid of.
"""

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from towline.format.wire.frames import ASK, Group, Kind, encode_put, json_part
from towline.link.handshake import encode_greeting

from .wire import records_of

TOPIC: Final = b"flooded"
NAME: Final = "flood"
_MORE: Final = 1
_LONG: Final = 2
_HANDSHAKE: Final = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_READY: Final = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
_SILENT_S: Final = 1.0
_QUESTIONS: Final = {
    "consumer": {"op": "topics"},
    "peer": {"op": "state"},
    "producer": {"op": "topics"},
}
_FAR: Final = 1 << 60


def frame(data: bytes, *, more: bool) -> bytes:
    flags = _MORE if more else 0
    if len(data) < 256:
        return bytes([flags, len(data)]) + data
    return bytes([flags | _LONG]) + struct.pack(">Q", len(data)) + data


def message(parts: list[bytes]) -> bytes:
    return b"".join(frame(bytes(part), more=part is not parts[-1]) for part in parts)


def flood_of(kind: str, role: str) -> bytes:
    if kind == "parts":
        return frame(bytes(64 << 10), more=True) * 4
    if kind == "empty":
        return frame(b"", more=True) * 32_768
    if role == "producer":
        request = records_of(TOPIC, 1)
        head = encode_put(1, 0, _FAR, [Group(TOPIC, 0, 1, len(request.data))])
        return message([head, request.data]) * 256
    return message([ASK.pack(Kind.ASK, 1), bytes(json_part(_QUESTIONS[role]))]) * 512


def connected(place: str) -> socket.socket:
    if place.isdecimal():
        return socket.create_connection(("127.0.0.1", int(place)), _SILENT_S)
    connection = socket.socket(socket.AF_UNIX)
    with _closed_by_errors(connection):
        connection.settimeout(_SILENT_S)
        connection.connect(place)
    return connection


@contextmanager
def _closed_by_errors(connection: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def greeted(place: str, role: str) -> socket.socket:
    connection = connected(place)
    with _closed_by_errors(connection):
        _greet(connection, role)
    return connection


def _greet(connection: socket.socket, role: str) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # what it does not read waits there, not here
    facts = {"role": role, "cluster": "", "store": "", "name": NAME, "node": 9}
    connection.sendall(_HANDSHAKE + b"\x04" + bytes([len(_READY)]) + _READY)
    came = b""
    while b"READY" not in came:  # whatever comes before is no message to libzmq
        some = connection.recv(4096)
        if not some:
            raise ConnectionResetError
        came += some
    connection.sendall(message([bytes(part) for part in encode_greeting(facts)]))


def main() -> None:
    kind, role, place, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
    os.nice(19)  # what it costs to send is not the node's
    flood = flood_of(kind, role)
    until = time.monotonic() + seconds
    cuts = sent = 0
    while time.monotonic() < until:
        try:
            with greeted(place, role) as connection:
                while time.monotonic() < until:
                    connection.sendall(flood)
                    sent += len(flood)
        except TimeoutError:
            continue
        except OSError:
            cuts += 1
    json.dump({"cuts": cuts, "sent": sent}, sys.stdout)


if __name__ == "__main__":
    main()
