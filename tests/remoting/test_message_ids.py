"""Ids of messages name the port where they can be asked for: that of RocketMQ's clients where there is one."""

from tests.processes.waiting import await_
from towline.client.message import Message
from towline.client.producer import Producer
from towline.format.record.message_id import decode_offset_id, encode_offset_id
from towline.format.remoting.codes import RequestCode

from .conftest import RemotingNode
from .raw import WAIT_S, RawClient
from .reading import messages


def test_the_id_in_an_answer_is_the_one_that_a_tool_makes_of_the_record(client: RawClient, node: RemotingNode) -> None:
    answer = client.put("of-remoting", b"x")
    assert answer.code == 0, answer.remark
    given = answer.fields["msgId"]
    (message,) = messages(node, "of-remoting", 1)
    record = message.record
    assert record.store_host.port == node.port
    assert encode_offset_id(record.store_host, record.physical_offset) == given
    offset = decode_offset_id(given).physical_offset
    asked = {"offset": offset}
    # A reader that follows the log may have it a moment before serve looks there.
    await_(lambda: client.ask(RequestCode.VIEW_MESSAGE_BY_ID, asked).code == 0, WAIT_S, "the message by its id")


def test_ids_of_our_own_client_name_it_too_and_are_found(client: RawClient, node: RemotingNode) -> None:
    with Producer(node.endpoint) as producer:
        result = producer.send(Message("of-ours", b"x"))
    assert decode_offset_id(result.offset_message_id).store_host.port == node.port
    (message,) = messages(node, "of-ours", 1)
    assert message.message_id == result.offset_message_id
