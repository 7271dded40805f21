"""Records in a form: taken as they are wanted, and each thing that is wrong with one refused by its rule."""

import pytest

from tests.kernels.put.test_stamp import LATEST_MS, NOW, Group, Request, is_copied, sent
from towline.format.record import forms, record
from towline.format.record.forms import Form, form_of
from towline.format.record.properties import encode
from towline.format.record.rules import Rule
from towline.kernels.put.stamp import CHECK_CRC, FROM_CLIENT

CLIENT = CHECK_CRC | FROM_CLIENT
REALS = {b"orders": 4, b"%RETRY%workers": 1, b"closed": 0}
OF = {
    Form.DELAYED: (forms.SCHEDULE_TOPIC, 2),
    Form.HALF: (forms.HALF_TOPIC, 0),
    Form.TIMED: (forms.TIMER_TOPIC, 0),
    Form.CANCEL: (forms.TIMER_TOPIC, 1),
}
TIME = str(NOW + 500)
TIMES = {"TIMER_DELIVER_MS": TIME, "TIMER_OUT_MS": TIME}
OWN = {
    Form.DELAYED: {"DELAY": "3"},
    Form.HALF: {"TRAN_MSG": "true", "PGROUP": "sellers"},
    Form.TIMED: TIMES,
    Form.CANCEL: {**TIMES, "TIMER_DEL_UNIQKEY": "K" * 32},
}
FORMS = list(OF)


def request_of(form: Form, pairs: dict[str, str | None], sys_flag: int = 0, checks: int = CLIENT) -> Request:
    topic, queue_id = OF[form]
    wanted = {"TAGS": "TagA", "REAL_TOPIC": "orders", "REAL_QID": "3", **OWN[form], "UNIQ_KEY": "0" * 32, **pairs}
    properties = encode(wanted.items())
    made = record.encode(sent(topic.encode(), queue_id, body=b"body", properties=properties, sys_flag=sys_flag))
    return Request([Group(topic.encode(), queue_id, [made], form=form)], checks=checks, reals=REALS)


def rule_of(form: Form, pairs: dict[str, str | None], **more: int) -> Rule:
    return request_of(form, pairs, **more).run()[0]


@pytest.mark.parametrize("form", FORMS)
def test_a_record_in_its_form_is_stored(form: Form) -> None:
    assert form_of(OF[form][0].encode(), OF[form][1], levels=18) is form
    request = request_of(form, {})
    assert request.run() == (Rule.OK, [101])
    assert rule_of(form, {"KEYS": "a b", "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "x", "REAL_QID": "0"}) == Rule.OK
    assert rule_of(form, {"REAL_TOPIC": "%RETRY%workers", "REAL_QID": "0"}) == Rule.OK


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("pairs", "rule"),
    [
        ({"REAL_TOPIC": None}, Rule.REAL_TOPIC),
        ({"REAL_TOPIC": "order"}, Rule.REAL_TOPIC),
        ({"REAL_TOPIC": "orders2"}, Rule.REAL_TOPIC),
        ({"REAL_TOPIC": "closed"}, Rule.REAL_TOPIC),
        ({"REAL_TOPIC": forms.SCHEDULE_TOPIC}, Rule.REAL_TOPIC),
        ({"REAL_QID": None}, Rule.REAL_QUEUE),
        ({"REAL_QID": "4"}, Rule.REAL_QUEUE),
        ({"REAL_QID": "-1"}, Rule.REAL_QUEUE),
        ({"REAL_QID": "1x"}, Rule.REAL_QUEUE),
        ({"REAL_QID": "9" * 19}, Rule.REAL_QUEUE),
        ({"CLUSTER": "another"}, Rule.PROPERTY_OF_ANOTHER_BROKER),
        ({"CLUSTER": "cluster-a"}, Rule.OK),
        ({"POP_CK": "1"}, Rule.PROPERTY_NEVER_STORED),
        ({"INNER_NUM": "1"}, Rule.PROPERTY_OF_THE_BROKER),
        ({"__RMQ.TRANSIENT.x": "1"}, Rule.PROPERTY_NEVER_STORED),
    ],
)
def test_what_every_form_wants(form: Form, pairs: dict[str, str | None], rule: Rule) -> None:
    if "__RMQ.TRANSIENT.x" in pairs:  # the encoder would leave it out
        request = request_of(form, {"__RMQ_TRANSIENT.x": "1"})
        request.groups[0].records = [request.groups[0].records[0].replace(b"__RMQ_T", b"__RMQ.T")]
        assert request.run()[0] == rule
    else:
        assert rule_of(form, pairs) == rule


@pytest.mark.parametrize(
    ("form", "pairs", "rule"),
    [
        (Form.DELAYED, {"DELAY": None}, Rule.DELAY_LEVEL),
        (Form.DELAYED, {"DELAY": "2"}, Rule.DELAY_LEVEL),
        (Form.DELAYED, {"DELAY": "3 "}, Rule.DELAY_LEVEL),
        (Form.DELAYED, {"TRAN_MSG": "true"}, Rule.TRANSACTION_MISPLACED),
        (Form.DELAYED, TIMES, Rule.TIMER_MISPLACED),
        (Form.HALF, {"TRAN_MSG": None}, Rule.HALF_FORM),
        (Form.HALF, {"TRAN_MSG": "false"}, Rule.HALF_FORM),
        (Form.HALF, {"TRAN_MSG": "truer"}, Rule.HALF_FORM),
        (Form.HALF, {"PGROUP": None}, Rule.HALF_FORM),
        (Form.HALF, {"MORE": "x" * (32767 - 256)}, Rule.OK),
        (Form.HALF, {"MORE": "x" * (32767 - 192)}, Rule.HALF_TOO_LARGE),
        (Form.HALF, {"DELAY": "1"}, Rule.DELAY_MISPLACED),
        (Form.TIMED, {"TIMER_DELIVER_MS": None}, Rule.TIMER_FORM),
        (Form.TIMED, {"TIMER_OUT_MS": None}, Rule.TIMER_FORM),
        (Form.TIMED, {"TIMER_OUT_MS": str(NOW + 501)}, Rule.TIMER_FORM),
        (Form.TIMED, {"TIMER_DELIVER_MS": "soon"}, Rule.TIMER_FORM),
        (Form.TIMED, dict.fromkeys(TIMES, str(NOW + LATEST_MS)), Rule.OK),
        (Form.TIMED, dict.fromkeys(TIMES, str(NOW + LATEST_MS + 1)), Rule.TIMER_TOO_FAR),
        (Form.TIMED, dict.fromkeys(TIMES, str(NOW - 5000)), Rule.OK),
        (Form.TIMED, {"TIMER_DEL_UNIQKEY": "K"}, Rule.TIMER_MISPLACED),
        (Form.TIMED, {"TIMER_DELAY_SEC": "1"}, Rule.TIMER_MISPLACED),
        (Form.CANCEL, {"TIMER_DEL_UNIQKEY": None}, Rule.CANCEL_FORM),
        (Form.CANCEL, dict.fromkeys(TIMES, str(NOW)), Rule.CANCEL_TOO_LATE),
        (Form.CANCEL, dict.fromkeys(TIMES, str(NOW + 1)), Rule.OK),
        (Form.CANCEL, dict.fromkeys(TIMES, str(NOW + LATEST_MS + 1)), Rule.TIMER_TOO_FAR),
    ],
)
def test_what_one_form_wants(form: Form, pairs: dict[str, str | None], rule: Rule) -> None:
    request = request_of(form, pairs)
    frame = b"".join(request.groups[0].records)
    assert request.run()[0] == rule
    if rule != Rule.OK:
        assert is_copied(request.log, frame), "a refused request is not stamped"


def test_the_refusal_names_the_record_and_the_property() -> None:
    good, bad = request_of(Form.DELAYED, {}), request_of(Form.DELAYED, {"TRAN_MSG": "true"})
    request = Request(
        [Group(forms.SCHEDULE_TOPIC.encode(), 2, [*good.groups[0].records, *bad.groups[0].records], form=Form.DELAYED)],
        checks=CLIENT,
        reals=REALS,
    )
    frame = b"".join(request.groups[0].records)
    assert request.run()[0] == Rule.TRANSACTION_MISPLACED
    assert request.result[:3].tolist() == [1, len(good.groups[0].records[0]), frame.index(b"TRAN_MSG")]


def test_bits_of_a_transaction_stay_a_brokers() -> None:
    assert rule_of(Form.HALF, {}, sys_flag=record.TRANSACTION_PREPARED) == Rule.SYS_FLAG


@pytest.mark.parametrize("form", FORMS)
def test_a_process_of_the_node_is_not_asked_for_any_form(form: Form) -> None:
    assert rule_of(form, {"REAL_TOPIC": "nobody", "DELAY": None, "TRAN_MSG": None}, checks=CHECK_CRC) == Rule.OK


def test_the_queues_of_the_forms() -> None:
    schedule = forms.SCHEDULE_TOPIC.encode()
    assert [form_of(schedule, queue, levels=2) for queue in (-1, 0, 1, 2)] == [0, Form.DELAYED, Form.DELAYED, 0]
    assert [form_of(forms.HALF_TOPIC.encode(), queue, levels=2) for queue in (-1, 0, 1)] == [0, Form.HALF, 0]
    assert [form_of(forms.TIMER_TOPIC.encode(), queue, levels=2) for queue in (-1, 0, 1, 2)] == [
        0,
        Form.TIMED,
        Form.CANCEL,
        0,
    ]
    assert form_of(b"orders", 0, levels=18) is Form.PLAIN
