"""Clients as RocketMQ's tools ask for them: who is there, and what they say of themselves, which they are asked for."""

from functools import partial

from towline.errors import TowlineError
from towline.format.record.message_id import decode_offset_id
from towline.format.remoting.broker_bodies import ProducerFacts, producer_table
from towline.format.remoting.codes import RequestCode, RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import ConsumeDirectly, RunningInfo, read_header
from towline.format.wire.frames import Buffer

from .client_calls import ClientCalls
from .clients import Clients
from .connections import Answer
from .consumers import Consumers, Membership
from .questions import Facts, refusal_in
from .readers import Readers, check_record


class ClientAdmin:
    """Handles what tools ask of clients."""

    def __init__(
        self, clients: Clients, consumers: Consumers, calls: ClientCalls, readers: Readers, broker: str
    ) -> None:
        self._clients, self._consumers, self._calls = clients, consumers, calls
        self._readers, self._broker = readers, broker

    def producers(self, _: Command, answer: Answer) -> None:
        """GET_ALL_PRODUCER_INFO: of clients on this port."""
        table = {
            group: [
                ProducerFacts(each.client_id, f"/{each.address}", each.language, each.version, each.heard_ms)
                for each in self._clients.producers_of(group)
            ]
            for group in sorted(self._clients.producer_groups)
        }
        answer(ResponseCode.SUCCESS, body=producer_table(table))

    def running_info(self, request: Command, answer: Answer) -> None:
        """GET_CONSUMER_RUNNING_INFO: the client's own answer. Raises MalformedFrame, RequestRefused."""
        header = read_header(RunningInfo, request.fields)
        member = self._member(header.consumer_group, header.client_id)
        fields = {
            "consumerGroup": header.consumer_group,
            "clientId": header.client_id,
            "jstackEnable": "true" if header.jstack_enable else "false",
        }
        self._pass_on(member, RequestCode.GET_CONSUMER_RUNNING_INFO, fields, b"", answer)

    def consume(self, request: Command, answer: Answer) -> None:
        """CONSUME_MESSAGE_DIRECTLY: a client handles a message once more. Raises MalformedFrame, RequestRefused."""
        header = read_header(ConsumeDirectly, request.fields)
        member = self._member(header.consumer_group, header.client_id)
        try:
            place = decode_offset_id(header.msg_id).physical_offset
        except TowlineError as error:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, error.describe()) from None
        fields = {
            "consumerGroup": header.consumer_group,
            "clientId": header.client_id,
            "msgId": header.msg_id,
            "topic": header.topic,
            "brokerName": self._broker,
        }
        ask = partial(self._pass_on, member, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)

        def told(found: Facts | None, rest: list[Buffer]) -> None:
            problem = refusal_in(found, "serve")
            if problem or len(rest) < 2:
                answer(ResponseCode.SYSTEM_ERROR, remark=problem or "can not find message")
                return
            try:
                check_record(answer, rest)
                ask(bytes(rest[1]), answer)
            except RequestRefused as refused:
                answer.refuse(refused)

        self._readers.read(place, told)

    def _member(self, group: str, client_id: str) -> Membership:
        found = next((each for each in self._consumers.members_of(group) if each.client_id == client_id), None)
        if found is None:
            why = f"The Consumer <{group}> <{client_id}> not online"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, why)
        return found

    def _pass_on(
        self, member: Membership, code: RequestCode, fields: dict[str, str], body: bytes, answer: Answer
    ) -> None:
        """Asks a client, and passes its answer on."""

        def answered(said: Command | None) -> None:
            if said is None:
                why = f"consumer <{member.data.group}> <{member.client_id}> Timeout: it does not answer"
                answer(ResponseCode.CONSUME_MSG_TIMEOUT, remark=why)
            else:
                answer(said.code, said.fields, bytes(said.body), said.remark)

        self._calls.ask(member.connection, code, fields, body, answered)
