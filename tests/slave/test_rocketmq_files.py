"""What a broker answers its slaves, as the files of a node's `config/`."""

import struct

import pytest

from towline.errors import MalformedFrame
from towline.slave.rocketmq.files import (
    groups_file,
    modes_file,
    offsets_file,
    timers_file,
    topics_file,
    transactions_file,
)

TIMERS = struct.Struct(">7q")


def test_files_have_the_members_of_the_brokers_own_and_no_others() -> None:
    told = {"dataVersion": {"counter": 3}, "topicConfigTable": {"t": {}}, "mappingDataVersion": {}, "x": 1}
    assert topics_file(told) == {"dataVersion": {"counter": 3}, "topicConfigTable": {"t": {}}}
    assert groups_file({"subscriptionGroupTable": {"g": {}}, "forbiddenTable": {}}) == {
        "subscriptionGroupTable": {"g": {}},
        "forbiddenTable": {},
    }
    assert offsets_file({"offsetTable": {"t@g": {"0": 7}}, "resetOffsetTable": {}}) == {
        "offsetTable": {"t@g": {"0": 7}}
    }
    assert modes_file({"messageRequestModeMap": {}}) == {"messageRequestModeMap": {}}


@pytest.mark.parametrize("told", [{"offsetTable": []}, {"offsetTable": "x"}, {"dataVersion": 5}])
def test_a_member_that_is_no_object_is_refused(told: dict[str, object]) -> None:
    with pytest.raises(MalformedFrame):
        offsets_file(told)


def test_transactions_go_on_where_the_brokers_own_group_stands() -> None:
    table = {
        "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {"0": 12},
        "RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS": {"0": 9},
    }
    assert transactions_file({"offsetTable": table}) == {"halfOffset": 12, "opOffset": 9}
    assert transactions_file({}) == {"halfOffset": 0, "opOffset": 0}


def test_timers_of_the_wheel_that_were_due_are_delivered_and_all_others_wait() -> None:
    told = timers_file(TIMERS.pack(50_000, 1, 2, 30, 0, 0, 0))
    assert (told["deliveredDue"], told["upTo"], told["from"]) == (49_999, 30, 0)
    assert told["deliveredOffset"] > 2**60, "of that time, whatever their number"
    assert "upTo" not in timers_file(TIMERS.pack(50_000, 1, 2, 0, 0, 0, 0))
    with pytest.raises(MalformedFrame):
        timers_file(b"{}")
