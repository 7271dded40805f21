"""Messages that a consumer could not handle come back: stored again for the group's retry topic, after a delay, or as a
dead letter (spec 11.2)."""

from towline.errors import IllegalProperty, MalformedRecord
from towline.format.record.forms import StoredForm, delayed
from towline.format.record.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC
from towline.format.record.properties import decode as decode_properties
from towline.format.record.record import Record, decode
from towline.format.record.retries import FIRST_LEVEL, RETRIES_DEFAULT, TIMES_MAX, sent_back
from towline.format.remoting.codes import RequestRefused, ResponseCode
from towline.format.remoting.command import Command
from towline.format.remoting.headers import SendBack, read_header
from towline.format.remoting.stored import BrokerFacts
from towline.format.wire.frames import Buffer, Group, PutAnswer
from towline.limits import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX

from .connections import Answer
from .outcomes import outcome
from .put_client import PutClient
from .questions import Facts, refusal_in
from .readers import Readers, check_record
from .topics import PUT_AWAY, TopicDesk


class SendBacks:
    """Handles CONSUMER_SEND_MSG_BACK."""

    def __init__(self, put: PutClient, topics: TopicDesk, readers: Readers, facts: BrokerFacts) -> None:
        self._put, self._topics, self._readers, self._facts = put, topics, readers, facts

    def send_back(self, request: Command, answer: Answer) -> None:
        """Raises MalformedFrame, RequestRefused."""
        header = read_header(SendBack, request.fields)

        def told(found: Facts | None, rest: list[Buffer]) -> None:
            problem = refusal_in(found, "serve")
            if problem or len(rest) < 2 or not len(rest[1]):
                answer(ResponseCode.SYSTEM_ERROR, remark=problem or f"look message by offset failed, {header.offset}")
                return
            try:
                check_record(answer, rest)
                record = decode(bytes(rest[1]), check_crc=False)
                topic = self._topic(header, record)
                if self._topics.find(topic) is None:
                    self._topics.make_for(topic, "", 1, lambda why: self._made(header, record, answer, why))
                else:
                    self._store(header, record, answer)
            except RequestRefused as refused:
                answer.refuse(refused)
            except MalformedRecord as error:
                answer(ResponseCode.SYSTEM_ERROR, remark=error.describe())

        self._readers.read(header.offset, told)

    def _topic(self, header: SendBack, record: Record) -> str:
        most = header.max_reconsume_times if header.max_reconsume_times >= 0 else RETRIES_DEFAULT
        given_up = header.delay_level < 0 or record.reconsume_times >= most
        return (DEAD_LETTER_TOPIC_PREFIX if given_up else RETRY_TOPIC_PREFIX) + header.group

    def _made(self, header: SendBack, record: Record, answer: Answer, why: str) -> None:
        try:
            if why:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, why)
            self._store(header, record, answer)
        except RequestRefused as refused:
            answer.refuse(refused)

    def _store(self, header: SendBack, record: Record, answer: Answer) -> None:
        topic = self._topic(header, record)
        form = StoredForm(topic, 0, ())
        if topic.startswith(RETRY_TOPIC_PREFIX):
            level = header.delay_level or FIRST_LEVEL + record.reconsume_times
            form = delayed(topic, 0, level, self._facts.levels)
        known = decode_properties(record.properties)
        more = {RETRY_TOPIC: record.topic.decode("utf-8", "replace"), ORIGIN_MESSAGE_ID: header.origin_msg_id}
        more = {name: value for name, value in more.items() if name not in known and value}
        append = bool(self._put.welcome.get("append_property_crc"))
        times = min(record.reconsume_times + 1, TIMES_MAX)
        try:
            data = sent_back(record, form, more, times, append_property_crc=append)
        except (IllegalProperty, MalformedRecord) as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, error.describe()) from None

        def done(found: PutAnswer | None) -> None:
            code, why = outcome(found)
            answer(code, remark=why)

        groups = [Group(form.topic.encode(), form.queue_id, 1, len(data))]
        if not self._put.put(groups, data, done):
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]{PUT_AWAY}")
