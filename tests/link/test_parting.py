"""A server closes while its peers go, each with half of an answer: its process stays.

libzmq (4.3.5) aborts it where the socket does not linger; without PARTING_MS each run of the program ends so.
"""

import subprocess
import sys

PROGRAM = """
import socket, struct, sys
from contextlib import ExitStack
from tests.link.meeting import until
from tests.link.test_link import OWN
from tests.processes.flooding import greeted
from towline.link.context import close_context, new_context
from towline.link.server import Server

PEERS, MIB = 30, 1 << 20
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: no goodbye
for _ in range(40):
    context = new_context()
    server = Server(context, ["tcp://127.0.0.1:0"], own=OWN)
    port = server.endpoints[0].rpartition(":")[2]
    with ExitStack() as stack:
        peers = [stack.enter_context(greeted(port, "producer")) for _ in range(PEERS)]
        until(lambda: server.receive() is None and len(server.sessions) == PEERS, "the greetings")
        for peer in list(server.sessions):
            server.send(peer, [bytes(MIB), bytes(MIB)])
        for connection in peers:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        for connection in peers[:PEERS // 2]:
            connection.close()
        server.close()
    close_context(context)
print("closed")
"""


def test_peers_that_go_with_half_an_answer_as_a_server_closes_do_not_end_its_process() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr[-2_000:]
