"""Name servers and brokers that answer as they are told, over real connections."""

import json
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from towline.format.remoting.codes import RequestCode, ResponseCode
from towline.format.remoting.command import ANSWER, LENGTH, ONE_WAY, Command, decode, encode

VERSION: Final = 479
Answer = Callable[[Command], Command | None]  # None: it says nothing


class Standin:
    """One server. `asked` are the requests that came, `answers` what it says to them, by their codes; a request of
    another code is not supported."""

    def __init__(self, answers: Mapping[int, Answer]) -> None:
        self.answers = dict(answers)
        self.asked: list[Command] = []
        self._connections: list[_Connection] = []
        self._server = _Server(self)
        self.port = int(self._server.server_address[1])
        self.address = f"127.0.0.1:{self.port}"

    def codes(self) -> list[int]:
        return [each.code for each in self.asked]

    def tell(self, command: Command) -> None:
        """Sends a request of the server's own to everybody who is connected."""
        for each in list(self._connections):
            each.write(command)

    def cut(self) -> None:
        """Ends the connections that there are."""
        for each in list(self._connections):
            each.end()

    def take(self, connection: "_Connection", command: Command) -> None:
        self.asked.append(command)
        if command.is_answer:
            return
        answer = self.answers.get(command.code, refuses(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))(command)
        if answer is not None and not command.flag & ONE_WAY:
            connection.write(answer)

    def joined(self, connection: "_Connection") -> None:
        self._connections.append(connection)

    def left(self, connection: "_Connection") -> None:
        self._connections.remove(connection)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.cut()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, standin: Standin) -> None:
        self.standin = standin
        super().__init__(("127.0.0.1", 0), _Connection)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        standin = self.server.standin  # type: ignore[attr-defined]  # it is a _Server
        self._lock = threading.Lock()
        standin.joined(self)
        came = b""
        try:
            while data := self.request.recv(1 << 16):
                came += data
                while len(came) >= LENGTH.size and len(came) >= (size := LENGTH.size + LENGTH.unpack_from(came)[0]):
                    standin.take(self, decode(came[:size]))
                    came = came[size:]
        except OSError:
            pass
        finally:
            standin.left(self)

    def write(self, command: Command) -> None:
        with self._lock:
            self.request.sendall(b"".join(encode(command)))

    def end(self) -> None:
        self.request.shutdown(2)


@contextmanager
def serving(answers: Mapping[int, Answer]) -> Iterator[Standin]:
    made = Standin(answers)
    try:
        yield made
    finally:
        made.close()


# --- answers


def says(fields: Mapping[str, Any] | None = None, body: Any = None) -> Answer:
    """Success, with these fields and a body in JSON, or of bytes."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    text = {name: str(value) for name, value in (fields or {}).items()}
    return lambda asked: Command(0, asked.opaque, ANSWER, "", text, data, version=VERSION)


def refuses(code: int, remark: str = "told to refuse") -> Answer:
    return lambda asked: Command(code, asked.opaque, ANSWER, remark, version=VERSION)


def silent(_: Command) -> None:
    """Nothing."""


# --- who they are


def names_of(brokers: Mapping[str, Mapping[int, str]], topics: Mapping[str, Mapping[str, int]]) -> dict[int, Answer]:
    """What a name server says of brokers, by name and id, and of topics: how many queues of each, by broker."""

    def route(asked: Command) -> Command:
        topic = asked.fields["topic"]
        if topic not in topics:
            return _answer(refuses(ResponseCode.TOPIC_NOT_EXIST), asked)
        rows = [
            {"brokerName": name, "readQueueNums": count, "writeQueueNums": count, "perm": 6, "topicSysFlag": 0}
            for name, count in topics[topic].items()
        ]
        return _answer(says(body={"queueDatas": rows, "brokerDatas": [], "filterServerTable": {}}), asked)

    def cluster(asked: Command) -> Command:
        table = {
            name: {
                "brokerAddrs": {str(number): address for number, address in addresses.items()},
                "brokerName": name,
                "cluster": "c1",
            }
            for name, addresses in brokers.items()
        }
        return _answer(says(body={"brokerAddrTable": table, "clusterAddrTable": {"c1": list(brokers)}}), asked)

    return {
        RequestCode.GET_ROUTEINFO_BY_TOPIC: route,
        RequestCode.GET_BROKER_CLUSTER_INFO: cluster,
        RequestCode.DELETE_TOPIC_IN_NAMESRV: says(),
    }


def broker() -> dict[int, Answer]:
    """What a broker says that has the topic `t`, and takes every send."""
    count = iter(range(1 << 30))

    def sent(asked: Command) -> Command:
        offset = next(count)
        fields = {
            "msgId": f"7F0000010000{asked.opaque & 0xFFFF:04X}{offset:016X}",
            "queueId": asked.fields["e"],
            "queueOffset": offset,
        }
        return _answer(says(fields), asked)

    topic = {"topicName": "t", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
    return {
        RequestCode.HEART_BEAT: says(),
        RequestCode.SEND_MESSAGE_V2: sent,
        RequestCode.SEND_BATCH_MESSAGE: sent,
        RequestCode.GET_ALL_TOPIC_CONFIG: says(body={"topicConfigTable": {"t": topic}}),
        RequestCode.DELETE_TOPIC_IN_BROKER: says(),
        RequestCode.GET_MIN_OFFSET: says({"offset": 0}),
        RequestCode.GET_MAX_OFFSET: says({"offset": 0}),
    }


def _answer(answer: Answer, asked: Command) -> Command:
    found = answer(asked)
    assert found is not None
    return found
