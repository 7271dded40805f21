"""Options: any case, every value checked, wrong names refused with the nearest right one."""

import pytest

from towline.arrow.errors import UnknownColumn
from towline.limits import MIB
from towline.spark.errors import BadOption, NoTable, UnknownOption
from towline.spark.options import NAMES, Offsets, SourceOptions


def parsed(**options: str) -> SourceOptions:
    return SourceOptions.parse({"path": "/store"} | options)


def test_names_come_in_any_case():
    found = parsed(STARTINGTIMESTAMP="17", readmode="SCAN", CheckCRCs="True", batchBYTES="64k")
    assert (found.starting_timestamp, found.read_mode, found.check_crcs) == (17, "scan", True)
    assert found.batch_bytes == 64 * 1024


def test_without_options_everything_is_read():
    found = parsed()
    assert (found.read_mode, found.fail_on_data_loss, found.check_crcs, found.on_corruption) == (
        "auto",
        True,
        None,
        "fail",
    )
    assert (found.batch_rows, found.batch_bytes, found.split_bytes) == (16_384, 32 * MIB, 64 * MIB)
    assert not found.names_topics
    assert found.wants("any", 7)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("startingOffset", "startingOffsets"),
        ("check_crcs", "checkCrcs"),
        ("checkCrc", "checkCrcs"),
        ("topics", "topic"),
        ("zone", ""),
        ("failOnDataloss1", "failOnDataLoss"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(wrong, right):
    with pytest.raises(UnknownOption) as refused:
        parsed(**{wrong: "x"})
    assert refused.value.meant == right
    assert wrong in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("subscribe", "a,,b"),
        ("subscribe", " "),
        ("subscribePattern", "("),
        ("assign", "[1]"),
        ("assign", '{"a": ["0"]}'),
        ("assign", '{"a": [-1]}'),
        ("startingOffsets", "first"),
        ("startingOffsets", '{"a": {"x": 1}}'),
        ("startingOffsets", '{"a": {"0": -3}}'),
        ("startingOffsets", '{"a": 4}'),
        ("endingOffsets", "earliest"),
        ("startingTimestamp", "yesterday"),
        ("startingOffsetsByTimestamp", "earliest"),
        ("startingOffsetsByTimestamp", '{"a": {"0": "noon"}}'),
        ("endingOffsetsByTimestamp", '{"a": {"0": -2}}'),
        ("startingTimestamp", "2026-11-27T09:30:00"),
        ("endingTimestamp", "1969-12-31T23:59:59Z"),
        ("subExpression", "a && b"),
        ("startingPhysicalOffset", "-1"),
        ("subExpression", "||"),
        ("readMode", "fast"),
        ("minPartitions", "0"),
        ("splitBytes", "1m"),
        ("splitBytes", "64 apples"),
        ("failOnDataLoss", "yes"),
        ("onCorruption", "ignore"),
        ("batchRows", "0"),
    ],
)
def test_a_wrong_value_is_refused_by_the_options_name(name, text):
    with pytest.raises(BadOption) as refused:
        parsed(**{name: text})
    assert refused.value.name == name


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1764235800123", 1764235800123),
        ("2025-11-27T09:30:00.123Z", 1764235800123),
        (" 2025-11-27T10:30:00.123+01:00 ", 1764235800123),
        ("1970-01-01T00:00Z", 0),
    ],
)
def test_a_time_is_in_ms_or_says_its_zone(text, ms):
    assert parsed(startingTimestamp=text, endingTimestamp=text).starting_timestamp == ms


def test_the_least_size_of_a_split_is_told():
    with pytest.raises(BadOption, match="64m or more"):
        parsed(splitBytes="1m")


def test_a_reader_passes_over_options_of_the_sink_but_for_the_topic():
    found = parsed(topic="orders", compression="none", txnAppId="me", txnVersion="1", serve="tcp://x:1")
    assert found == parsed(subscribe="orders")
    assert parsed(topic="orders", subscribe="returns") == parsed(subscribe="returns")


@pytest.mark.parametrize(
    "options", [{}, {"path": "/store", "owner": "me", "provider": "towline", "option.path": "/store"}]
)
def test_a_table_of_a_catalog_is_refused_with_what_works(options):
    with pytest.raises(NoTable, match="CREATE TEMPORARY VIEW"):
        SourceOptions.parse(options)


def test_columns_must_exist():
    assert parsed(columns="topic, body").columns == ("topic", "body")
    with pytest.raises(UnknownColumn, match="queueOffset"):
        parsed(columns="topic,queueOfset")


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "a", "subscribePattern": "a.*"},
        {"subscribe": "a", "assign": '{"a": [0]}'},
        {"maxMessagesPerTrigger": "1", "maxOffsetsPerTrigger": "2"},
        {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"a": {"0": 1}}'},
        {"endpoint": "tcp://127.0.0.1:1"},
        {"readMode": "queue", "startingPhysicalOffset": "0"},
        {"includeHalves": "true", "subscribe": "a"},
        {"includeHalves": "true", "path": "", "endpoint": "tcp://127.0.0.1:1"},
    ],
)
def test_options_that_exclude_each_other(options):
    with pytest.raises(BadOption):
        parsed(**options)


def test_a_path_may_be_a_uri_of_a_file():
    for text in (
        "/data/my store",
        "file:/data/my%20store",
        "file:///data/my%20store",
        "file://localhost/data/my store",
    ):
        assert parsed(path=text).path == "/data/my store"
    for text in ("hdfs://host/data", "s3a://bucket/store", "file://host/data"):
        with pytest.raises(BadOption, match="directory"):
            parsed(path=text)


def test_either_a_path_or_an_endpoint():
    with pytest.raises(BadOption, match="either"):
        SourceOptions.parse({"readMode": "scan"})
    assert SourceOptions.parse({"endpoint": "tcp://127.0.0.1:1"}).endpoint
    with pytest.raises(BadOption, match="by its queues"):
        SourceOptions.parse({"endpoint": "tcp://127.0.0.1:1", "startingPhysicalOffset": "0"})


def test_offsets_by_queue_and_by_broker():
    found = parsed(startingOffsets='{"a": {"0": 23, "1": -2, "2": -1}, "b": {"broker-1": {"0": 5}}}').starting_offsets
    assert found is not None
    assert [found.of("a", "x", queue) for queue in range(4)] == [23, "earliest", "latest", None]
    assert (found.of("b", "broker-1", 0), found.of("b", "broker-2", 0)) == (5, None)
    assert parsed(startingOffsets="Earliest").starting_offsets == Offsets("earliest")


def test_assigned_queues_only():
    found = parsed(assign='{"a": [0, 2]}')
    assert [found.wants("a", 0), found.wants("a", 1), found.wants("b", 0)] == [True, False, False]


def test_a_pattern_fits_the_whole_name():
    found = parsed(subscribePattern="Topic[AB]")
    assert [found.wants(topic, 0) for topic in ("TopicA", "TopicC", "TopicAB", "xTopicA")] == [
        True,
        False,
        False,
        False,
    ]


def test_every_option_is_in_the_table_once():
    assert len({name.lower() for name in NAMES}) == len(NAMES)
