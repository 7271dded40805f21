"""A client that speaks remoting frame by frame."""

import json
import socket
import time
from typing import Any, Final, Self

from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import LENGTH, ONE_WAY, Command, Form, decode, encode

WAIT_S: Final = 30.0


class RawClient:
    """One connection. Requests of the server's own are kept in `asked`."""

    def __init__(self, port: int, form: Form = Form.JSON) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket_port = self.socket.getsockname()[1]
        self._form = form
        self._opaque = 0
        self._came = bytearray()
        self.asked: list[Command] = []

    def ask(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> Command:
        """The answer to a request."""
        opaque = self.send(code, fields, body)
        while True:
            found = self.read()
            if found.is_answer and found.opaque == opaque:
                return found
            assert not found.is_answer, found
            self.asked.append(found)

    def send(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"", flag: int = 0) -> int:
        self._opaque += 1
        text = {name: str(value) for name, value in (fields or {}).items()}
        self.write(b"".join(encode(Command(code, self._opaque, flag, "", text, body, self._form, 409))))
        return self._opaque

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> Command:
        """The next command. Raises ConnectionResetError where the server has closed, TimeoutError."""
        while len(self._came) < LENGTH.size or len(self._came) < LENGTH.size + LENGTH.unpack_from(self._came)[0]:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError
            self._came += data
        size = LENGTH.size + LENGTH.unpack_from(self._came)[0]
        frame = bytes(self._came[:size])
        del self._came[:size]
        return decode(frame)

    def await_request(self, code: int) -> Command:
        """The next request of the server's own with this code."""
        while True:
            found = self.asked.pop(0) if self.asked else self.read()
            if found.code == code and not found.is_answer:
                return found

    def is_closed(self) -> bool:
        """Whether the server closes the connection."""
        try:
            while True:
                self.read()
        except TimeoutError:
            return False
        except OSError:
            return True

    # --- requests of producers

    def put(self, topic: str, body: bytes, properties: str = "", **more: Any) -> Command:
        return self.ask(RequestCode.SEND_MESSAGE_V2, sent(topic, properties, **more), body)

    def put_batch(self, topic: str, members: list[bytes], properties: str = "", **more: Any) -> Command:
        fields = sent(topic, properties, **{"m": "true", **more})
        return self.ask(RequestCode.SEND_BATCH_MESSAGE, fields, b"".join(members))

    def put_one_way(self, topic: str, body: bytes) -> None:
        self.send(RequestCode.SEND_MESSAGE_V2, sent(topic, ""), body, ONE_WAY)

    def heartbeat(self, client_id: str, *producer_groups: str) -> Command:
        groups = ",".join(f'{{"groupName":"{group}"}}' for group in producer_groups)
        body = f'{{"clientID":"{client_id}","producerDataSet":[{groups}],"consumerDataSet":[]}}'
        return self.ask(RequestCode.HEART_BEAT, {}, body.encode())

    # --- requests of consumers

    def join(self, client_id: str, group: str, subscriptions: dict[str, str], **more: Any) -> Command:
        """A heartbeat of a consumer with these expressions by topic."""
        rows = [
            {"topic": topic, "subString": text, "expressionType": "TAG", "subVersion": 1, **more}
            for topic, text in subscriptions.items()
        ]
        data = {"groupName": group, "messageModel": "CLUSTERING", "subscriptionDataSet": rows}
        body = {"clientID": client_id, "producerDataSet": [], "consumerDataSet": [data]}
        return self.ask(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())

    def pull(self, group: str, topic: str, queue: int, offset: int, **more: Any) -> Command:
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32,
                  "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*",
                  "subVersion": 1}  # fmt: skip
        return self.ask(RequestCode.PULL_MESSAGE, {**fields, **more})

    def members(self, group: str) -> list[str]:
        """Of a group; none where the answer is that there are none."""
        answer = self.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        return sorted(json.loads(bytes(answer.body))["consumerIdList"]) if answer.code == 0 else []

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sent(topic: str, properties: str, **more: Any) -> dict[str, Any]:
    """The fields of SEND_MESSAGE_V2; `more` by letter."""
    fields = {"a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": time.time_ns() // 1_000_000, "h": 0}
    return {**fields, "i": properties, "j": 0, "k": "false", "m": "false", **more}
