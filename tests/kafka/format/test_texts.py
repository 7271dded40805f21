"""Files of text: checkpoints, partition.metadata, meta.properties."""

import pytest

from tests.kafka.golden import LEADER_EPOCHS, META_PROPERTIES, PARTITION_METADATA
from towline.kafka.errors import MalformedBytes, Rule
from towline.kafka.format import checkpoints, meta_properties, partition_metadata
from towline.kafka.format.checkpoints import LeaderEpoch
from towline.kafka.format.meta_properties import MetaProperties

META = MetaProperties("c_ZvM0I_QJOJl4A3wMCuMg", 1, "zVWOm2JlziT1Ir39q2y6rA", 1)


class TestLeaderEpochs:
    def test_of_a_broker(self):
        assert checkpoints.decode_epochs(LEADER_EPOCHS.encode()) == [LeaderEpoch(0, 0)]
        assert checkpoints.encode_epochs([LeaderEpoch(0, 0)]).decode() == LEADER_EPOCHS

    def test_several_read_back(self):
        epochs = [LeaderEpoch(0, 0), LeaderEpoch(2, 10), LeaderEpoch(5, 2**40)]
        assert checkpoints.decode_epochs(checkpoints.encode_epochs(epochs)) == epochs

    @pytest.mark.parametrize(
        ("text", "at", "rule"),
        [
            ("1\n0\n", 0, Rule.VERSION),
            ("0\n", 2, Rule.TEXT),
            ("0\nx\n", 2, Rule.TEXT),
            ("0\n2\n0 0\n", 2, Rule.TEXT),
            ("0\n1\n0 0 0\n", 4, Rule.TEXT),
            ("0\n1\n0 x\n", 4, Rule.TEXT),
            ("0\n2\n3 0\n3 7\n", 8, Rule.TEXT),
            ("0\n2\n3 9\n4 7\n", 8, Rule.TEXT),
        ],
    )
    def test_a_line_that_is_wrong_is_named_by_its_byte(self, text, at, rule):
        with pytest.raises(MalformedBytes) as caught:
            checkpoints.decode_epochs(text.encode())
        assert (caught.value.at, caught.value.rule) == (at, rule)


class TestOffsets:
    def test_read_back(self):
        offsets = {("orders.eu-1", 0): 5, ("orders.eu-1", 11): 0, ("__x", 3): 2**50}
        text = checkpoints.encode_offsets(offsets)
        assert text.decode() == "0\n3\norders.eu-1 0 5\norders.eu-1 11 0\n__x 3 1125899906842624\n"
        assert checkpoints.decode_offsets(text) == offsets

    def test_an_empty_file_has_none(self):
        assert checkpoints.decode_offsets(b"") == {}
        assert checkpoints.decode_offsets(b"0\n0\n") == {}


class TestPartitionMetadata:
    def test_of_a_broker(self):
        found = partition_metadata.decode(PARTITION_METADATA.encode())
        assert partition_metadata.id_text(found) == "K2zxgTkGQ6WP0l1uBU9dDg"
        assert partition_metadata.encode(found).decode() == PARTITION_METADATA

    @pytest.mark.parametrize("text", ["", "version: 0\n", "version: 0\ntopic_id: short", "topic_id: x\nversion: 0"])
    def test_other_text_is_refused(self, text):
        with pytest.raises(MalformedBytes, match="no version and topic_id"):
            partition_metadata.decode(text.encode())

    def test_another_version_is_refused(self):
        with pytest.raises(MalformedBytes, match="version 1"):
            partition_metadata.decode(PARTITION_METADATA.replace("0", "1", 1).encode())


class TestMetaProperties:
    def test_of_a_broker(self):
        assert meta_properties.decode(META_PROPERTIES.encode()) == META
        lines = META_PROPERTIES.splitlines(keepends=True)[2:]
        assert meta_properties.encode(META).decode() == "".join(lines)

    def test_of_a_broker_with_zookeeper(self):
        old = MetaProperties("c", 3, version=0)
        assert meta_properties.decode(b"version=0\nbroker.id=3\ncluster.id=c\n") == old
        assert meta_properties.decode(meta_properties.encode(old)) == old

    @pytest.mark.parametrize(
        ("text", "at", "rule"), [("version=2\n", 0, Rule.VERSION), ("#x\nversion=1\nnode.id=a\n", 13, Rule.TEXT)]
    )
    def test_a_line_that_is_wrong_is_named_by_its_byte(self, text, at, rule):
        with pytest.raises(MalformedBytes) as caught:
            meta_properties.decode(text.encode())
        assert (caught.value.at, caught.value.rule) == (at, rule)
