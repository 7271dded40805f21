"""Request and reply: what a consumer replies is stored, and pushed to the producer that waits for it (spec 11.2).

The reply names its requester by the property REPLY_TO_CLIENT. Whether that one is there does not decide the answer to
the replier, as in RocketMQ: the requester's own time-out does.
"""

import logging
from typing import Final

from towline.format.record.properties import decode
from towline.format.remoting.codes import RequestCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import SendMessage, read_header

from .clients import Clients
from .connections import Answer, Connection, Connections
from .producers import LETTERED, Producers

REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"


class Replies:
    """Handles SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2. `store_host`: `host:port` of this node."""

    def __init__(
        self, producers: Producers, clients: Clients, connections: Connections, store_host: str, log: logging.Logger
    ) -> None:
        self._producers, self._clients, self._connections = producers, clients, connections
        self._store_host, self._log = store_host, log

    def reply(self, connection: Connection, request: Command, answer: Answer) -> None:
        """Raises MalformedFrame, RequestRefused."""
        header = read_header(SendMessage, request.fields, letters=request.code in LETTERED)
        self._push(connection, header, request)
        self._producers.send(connection, request, answer)

    def _push(self, connection: Connection, header: SendMessage, request: Command) -> None:
        requester = decode(header.properties.encode()).get(REPLY_TO_CLIENT, "")
        found = self._clients.connection_of(requester)
        if found is None:
            self._log.info("a reply is stored, but its requester %r is not connected here", requester[:100])
            return
        host, port = connection.peer
        fields = {
            "producerGroup": header.producer_group,
            "topic": header.topic,
            "defaultTopic": header.default_topic,
            "defaultTopicQueueNums": str(header.default_topic_queue_nums),
            "queueId": str(header.queue_id),
            "sysFlag": str(header.sys_flag),
            "bornTimestamp": str(header.born_timestamp),
            "flag": str(header.flag),
            "properties": header.properties,
            "reconsumeTimes": str(header.reconsume_times),
            "unitMode": "true" if header.unit_mode else "false",
            "bornHost": f"{host}:{port}",
            "storeHost": self._store_host,
            "storeTimestamp": str(header.born_timestamp),
        }
        self._connections.ask(found, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, fields, bytes(request.body))
