"""Subscriptions by tag."""

import numpy as np
import pytest

from towline.filter import tags
from towline.filter.errors import BadExpression
from towline.format.files.consume_queue import tags_code
from towline.format.java_hash import string_hash


@pytest.mark.parametrize("text", [None, "", "*"])
def test_no_text_and_an_asterisk_are_everything(text):
    parsed = tags.parse(text)
    assert parsed.everything
    assert parsed.may_match(np.array([0, 7, -(2**40)])).all()
    assert parsed.matches(None)
    assert parsed.matches("TagA")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("TagA", ("TagA",)),
        ("TagA||TagB", ("TagA", "TagB")),
        ("  TagA ||\tTagB\n|| ", ("TagA", "TagB")),
        ("b || a || b", ("b", "a")),
        ("|| a", ("a",)),
        ("a | b", ("a | b",)),
        ("* || a", ("*", "a")),
        (" * ", ("*",)),
        ("|| ||", ()),
        (" ", ()),
        ("\u3000a", ("\u3000a",)),
    ],
    ids=repr,
)
def test_tags_are_trimmed_and_empty_and_equal_ones_left_out(text, names):
    parsed = tags.parse(text)
    assert not parsed.everything
    assert parsed.names == names
    assert parsed.codes == tuple(map(string_hash, names))


@pytest.mark.parametrize("text", ["||", "||||"])
def test_nothing_but_separators_is_refused(text):
    with pytest.raises(BadExpression) as refused:
        tags.parse(text)
    assert refused.value.position == 0


def test_a_queue_is_filtered_by_the_low_32_bits_of_the_code():
    codes = np.array([tags_code(tag) for tag in ("TagA", "order-create", "TagB", None, "😀tag")])
    delivery_time = (5 << 32) + string_hash("TagA")
    both = tags.parse("order-create || 😀tag")
    assert both.may_match(codes).tolist() == [False, True, False, False, True]
    assert tags.parse("TagA").may_match(np.append(codes, delivery_time)).tolist() == [True, *[False] * 4, True]
    assert not tags.parse(" ").may_match(codes).any()


def test_a_consumer_drops_what_only_shares_the_hash():
    assert string_hash("Aa") == string_hash("BB")
    parsed = tags.parse("Aa")
    assert parsed.may_match(np.array([tags_code("BB")])).all()
    assert not parsed.matches("BB")
    assert not parsed.matches(None)
    assert parsed.matches("Aa")


def test_two_tags_of_one_hash_have_one_code():
    assert tags.parse("Aa || BB").codes == (string_hash("Aa"),)
