"""Statuses: numbers are part of the wire protocol."""

from towline.format.wire.status import GetStatus, PutStatus


class TestPutStatus:
    def test_the_numbers_are_those_of_rocketmq_5_and_then_our_own(self):
        assert [status.name for status in PutStatus] == [
            "PUT_OK",
            "FLUSH_DISK_TIMEOUT",
            "FLUSH_SLAVE_TIMEOUT",
            "SLAVE_NOT_AVAILABLE",
            "SERVICE_NOT_AVAILABLE",
            "CREATE_MAPPED_FILE_FAILED",
            "MESSAGE_ILLEGAL",
            "PROPERTIES_SIZE_EXCEEDED",
            "OS_PAGE_CACHE_BUSY",
            "UNKNOWN_ERROR",
            "IN_SYNC_REPLICAS_NOT_ENOUGH",
            "PUT_TO_REMOTE_BROKER_FAIL",
            "LMQ_CONSUME_QUEUE_NUM_EXCEEDED",
            "WHEEL_TIMER_FLOW_CONTROL",
            "WHEEL_TIMER_MSG_ILLEGAL",
            "WHEEL_TIMER_NOT_ENABLE",
            "SYSTEM_BUSY",
            "EXPIRED",
            "TOPIC_NOT_EXIST",
            "UNKNOWN_QUEUE",
            "NO_PERMISSION",
            "DISK_FULL",
            "NOT_GREETED",
            "NOT_MASTER",
            "OUT_OF_ORDER_SEQUENCE",
            "PRODUCER_FENCED",
            "UNKNOWN_PRODUCER",
        ]
        assert [int(status) for status in PutStatus] == list(range(len(PutStatus)))

    def test_only_put_ok_is_acknowledged(self):
        assert [status for status in PutStatus if status.acknowledged] == [PutStatus.PUT_OK]

    def test_a_time_out_of_the_disk_or_the_slave_means_stored_but_not_promised(self):
        assert {status.name for status in PutStatus if status.stored} == {
            "PUT_OK",
            "FLUSH_DISK_TIMEOUT",
            "FLUSH_SLAVE_TIMEOUT",
            "SLAVE_NOT_AVAILABLE",
        }

    def test_what_was_stored_is_not_retryable_because_a_retry_would_double_it(self):
        assert not [status for status in PutStatus if status.stored and status.retryable]

    def test_a_busy_store_may_be_asked_again_and_an_illegal_message_may_not(self):
        assert PutStatus.SYSTEM_BUSY.retryable
        assert PutStatus.NOT_GREETED.retryable
        assert not PutStatus.MESSAGE_ILLEGAL.retryable
        assert not PutStatus.TOPIC_NOT_EXIST.retryable

    def test_is_shown_by_its_name(self):
        assert (str(PutStatus.PUT_OK), f"{PutStatus.SYSTEM_BUSY:>12}") == ("PUT_OK", " SYSTEM_BUSY")
        assert (int(PutStatus.PUT_OK), PutStatus(1)) == (0, PutStatus.FLUSH_DISK_TIMEOUT)


class TestGetStatus:
    def test_the_numbers_count_from_0_and_found_is_the_first(self):
        assert GetStatus.FOUND == 0
        assert [int(status) for status in GetStatus] == list(range(11))
