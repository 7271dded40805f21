"""The sentence of a refusal: written by put, read by clients and people."""

import pytest

from towline.format.wire.refusals import CAUSES, Cause, read_sentence, sentence_of


def test_numbers_carry_their_units():
    said = sentence_of(Cause.SEND_QUEUE, {"waited_ms": 212, "limit_ms": 200}, 40)
    assert said == "cause=send_queue waited=212ms limit=200ms retry_after=40ms"
    assert sentence_of(Cause.FLUSH_BACKLOG, {"backlog_bytes": 9, "waiting": 2}, words="slow") == (
        "cause=flush_backlog backlog=9B waiting=2: slow"
    )


@pytest.mark.parametrize("cause", list(Cause), ids=lambda cause: cause.label)
def test_a_sentence_is_read_back_whole(cause):
    numbers = {"waited_ms": 212, "offset": -1, "backlog_bytes": 1 << 40}
    words = "first: the disk, then 2=3\nand more"
    assert read_sentence(sentence_of(cause, numbers, 40, words)) == (cause, numbers | {"retry_after_ms": 40}, words)
    assert read_sentence(sentence_of(cause, {})) == (cause, {}, "")


@pytest.mark.parametrize(
    "sentence", ["record 3 of the request: BODY_CRC", "", "cause=", "cause=moon", "because cause=page_cache"]
)
def test_a_sentence_that_names_no_cause_is_about_the_request(sentence):
    assert read_sentence(sentence) == (Cause.REQUEST, {}, sentence)


def test_every_cause_has_a_name_a_counter_of_its_own_and_a_remedy():
    assert list(CAUSES) == [cause.name.lower() for cause in Cause]
    assert [int(cause) for cause in Cause] == list(range(len(Cause)))
    assert all(len(cause.remedy.split()) > 5 for cause in Cause)
    assert len({cause.remedy for cause in Cause}) == len(Cause)
