"""Record batches of magic 2: the bytes that Kafka's own classes make, both ways."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kafka.golden import BATCHES, OFFSETS, RECORDS, TIMES, TRANSACTIONS_LOG
from tests.kafka.samples import ROWS, of_rows, risen, rows_of
from towline.kafka.errors import MalformedBytes
from towline.kafka.format import batch, control
from towline.kafka.format.batch import Compression, Head
from towline.kafka.format.building import Form, build, end_transaction
from towline.kafka.format.control import ControlType
from towline.kafka.format.records import Records
from towline.kafka.log.reading import Columns, decode
from towline.kafka.log.scan import scan


def decoded(data: bytes | np.ndarray) -> Columns:
    held = np.frombuffer(data, np.uint8)
    found = scan(held, check_crcs=True)
    assert found.fault is None
    assert found.end == len(held)
    return decode(held, found.batches)


class TestGolden:
    @pytest.mark.parametrize("kind", Compression, ids=lambda kind: kind.name.lower())
    def test_what_kafka_made_is_read(self, kind):
        columns = decoded(bytes.fromhex(BATCHES[kind]))
        assert rows_of(columns.records) == rows_of(RECORDS)
        assert columns.batches["attributes"].tolist() == [kind]
        assert columns.batches["leader_epoch"].tolist() == [-1]
        assert columns.sequences().tolist() == [-1] * 3

    def test_the_same_bytes_are_made(self):
        assert build(RECORDS, Form(leader_epoch=-1)).tobytes().hex() == BATCHES[Compression.NONE]

    def test_the_head_is_what_its_fields_say(self):
        head = batch.decode(bytes.fromhex(BATCHES[Compression.NONE]))
        assert head == Head(40, 91, -1, 2, 0xCC78BEF8, 0, 2, TIMES[0], TIMES[1], -1, -1, -1, 3)
        assert (head.size, head.last_offset, head.last_sequence) == (103, OFFSETS[-1], -1)
        assert batch.encode(head).hex() == BATCHES[Compression.NONE][: 2 * batch.SIZE]

    def test_transactions_of_a_broker_are_read(self):
        columns = decoded(bytes.fromhex(TRANSACTIONS_LOG))
        assert columns.records.offset.tolist() == list(range(9))
        assert columns.sequences().tolist() == [0, 1, -1, 2, 3, -1, 4, 5, -1]
        assert columns.of_batch("producer_id").tolist() == [0] * 9
        ends = [2, 5, 8]
        kinds = [control.decode_key(columns.records.key.at(row)) for row in ends]
        assert kinds == [ControlType.COMMIT, ControlType.ABORT, ControlType.COMMIT]
        assert [control.decode_value(columns.records.value.at(row)) for row in ends] == [0, 0, 0]

    def test_the_same_transaction_is_made(self):
        time = 0x1A21FC6D1EF
        records = Records.of([0, 1], [time, time], [None, None], [b"v", b"w"])
        form = Form(producer_id=0, producer_epoch=0, base_sequence=0, transactional=True)
        made = build(records, form).tobytes() + end_transaction(ControlType.COMMIT, 2, 0x1A21FC6D2AC, 0, 0).tobytes()
        assert made.hex() == TRANSACTIONS_LOG[: 2 * len(made)]


class TestWritten:
    @given(ROWS, st.sampled_from(Compression), st.integers(100, 2000))
    def test_records_read_back_as_they_were_written(self, drawn, kind, size):
        rows = risen(drawn)
        columns = decoded(build(of_rows(rows), Form(kind, batch_size=size)))
        assert rows_of(columns.records) == rows

    def test_the_time_of_the_append_is_that_of_each_record(self):
        columns = decoded(build(RECORDS, Form(append_time=5)))
        assert columns.records.timestamp.tolist() == [5, 5, 5]
        assert columns.batches["base_timestamp"].tolist() == TIMES[:1]
        assert columns.batches["max_timestamp"].tolist() == [5]

    def test_a_batch_ends_before_it_is_too_large_and_a_larger_record_is_alone(self):
        values = [b"x" * size for size in (100, 100, 100, 5_000, 10)]
        records = Records.of(range(5), [0] * 5, [None] * 5, values)
        assert decoded(build(records, Form(batch_size=400))).batches["record_count"].tolist() == [2, 1, 1, 1]

    def test_a_batch_ends_before_an_offset_is_too_far_from_its_first(self):
        records = Records.of([0, 2**31 - 1, 2**31], [0] * 3, [None] * 3, [b""] * 3)
        columns = decoded(build(records))
        assert columns.batches["last_offset"].tolist() == [2**31 - 1, 2**31]
        assert columns.records.offset.tolist() == [0, 2**31 - 1, 2**31]

    def test_sequences_begin_anew_behind_the_greatest(self):
        form = Form(producer_id=1, producer_epoch=0, base_sequence=2**31 - 2, batch_size=1)
        columns = decoded(build(RECORDS, form))
        assert columns.batches["base_sequence"].tolist() == [2**31 - 2, 2**31 - 1, 0]
        whole = decoded(build(RECORDS, replace(form, batch_size=1000)))
        assert whole.sequences().tolist() == [2**31 - 2, 2**31 - 1, 0]
        assert batch.decode(build(RECORDS, replace(form, batch_size=1000)).tobytes()).last_sequence == 0

    def test_no_records_are_no_bytes(self):
        assert len(build(Records.of([], [], [], []))) == 0


class TestBad:
    """Each under a CRC that fits, for what has the wrong CRC is not looked at further."""

    @pytest.mark.parametrize(
        ("at", "to", "said"),
        [
            (batch.SIZE, 0x7E, "do not end at the same byte"),  # the length of the first record
            (batch.SIZE, 0x00, "do not end at the same byte"),
            (batch.SIZE + 2, 0x80, "a size or a count is none"),  # its time takes a byte more
            (batch.SIZE + 4, 0x7E, "do not end at the same byte"),  # the size of its key
            (batch.SIZE + 4, 0x03, "a size or a count is none"),
            (batch.SIZE + 16, 0x01, "a size or a count is none"),  # the count of its headers
            (batch.LAYOUT.offset["record_count"] + 3, 2, "bytes stand behind the last record"),
            (batch.LAYOUT.offset["record_count"] + 3, 4, "do not end at the same byte|does not end in time"),
            (batch.LAYOUT.offset["record_count"] + 2, 1, "259 records do not fit into 42 bytes"),
            (batch.LAYOUT.offset["last_offset_delta"] + 3, 1, "do not rise up to the batch's last one"),
            (batch.SIZE + 20, 0, "do not rise up to the batch's last one"),  # the offset of the second record
        ],
    )
    def test_records_that_do_not_add_up_are_refused_at_their_batch(self, at, to, said):
        data = np.frombuffer(bytes.fromhex(BATCHES[Compression.NONE]), np.uint8).copy()
        data[at] = to
        before = build(Records.of([39], [0], [None], [b"x"]))
        both = np.concatenate([before, data])
        rows = scan(both).batches
        with pytest.raises(MalformedBytes, match=f"byte {len(before)}: the records of a batch .*({said})"):
            decode(both, rows)

    @given(st.data())
    def test_whatever_a_byte_becomes_is_read_or_refused(self, data):
        made = build(RECORDS).copy()
        at = data.draw(st.integers(batch.SIZE, len(made) - 1))
        made[at] = data.draw(st.integers(0, 255))
        try:
            columns = decode(made, scan(made).batches)
        except MalformedBytes:
            return
        assert len(rows_of(columns.records)) == 3

    def test_a_stream_that_is_none_is_refused_at_its_batch(self):
        data = np.frombuffer(bytes.fromhex(BATCHES[Compression.GZIP]), np.uint8).copy()
        data[batch.SIZE] ^= 1
        with pytest.raises(MalformedBytes, match=r"byte 0: .* cannot be decompressed: no stream of gzip"):
            decode(data, scan(data).batches)

    def test_a_head_that_compaction_left_has_no_records(self):
        head = batch.decode(bytes.fromhex(BATCHES[Compression.GZIP]))
        kept = batch.encode(head._replace(batch_length=batch.SIZE - batch.OVERHEAD, record_count=0))
        behind = build(Records.of([43], [0], [None], [b"x"])).tobytes()
        data = np.frombuffer(kept + behind, np.uint8)
        columns = decode(data, scan(data).batches)
        assert columns.records.offset.tolist() == [43]
        assert columns.row.tolist() == [1]
