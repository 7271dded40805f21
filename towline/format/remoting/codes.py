"""Numbers of requests and answers in RocketMQ's remoting protocol; which one a put's status is (spec 11.2)."""

from enum import IntEnum
from typing import Final

from towline.errors import Remedy, TowlineError
from towline.format.wire.status import GetStatus, PutStatus

REFUSAL: Final = "refusal"  # field of a node's answer: why a transaction was not ended, by name; a broker has none


class RequestCode(IntEnum):
    """What a client, a tool or a broker asks for. The last ones are asked by a broker, of a client."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    UPDATE_AND_CREATE_TOPIC_LIST = 18
    GET_ALL_TOPIC_CONFIG = 21
    UPDATE_BROKER_CONFIG = 25
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    CHECK_CLIENT_CONFIG = 46
    GET_TIMER_CHECK_POINT = 60
    GET_TIMER_METRICS = 61
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    GET_KVLIST_BY_NAMESPACE = 219
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    GET_TOPICS_BY_CLUSTER = 224
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST = 225
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    GET_CONSUMER_RUNNING_INFO = 307
    QUERY_CORRECTION_OFFSET = 308
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    GET_BROKER_CONSUME_STATS = 317
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    SEND_BATCH_MESSAGE = 320
    QUERY_CONSUME_QUEUE = 321
    QUERY_DATA_VERSION = 322
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    QUERY_TOPICS_BY_CONSUMER = 343
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    LITE_PULL_MESSAGE = 361
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    RESET_CONSUMER_CLIENT_OFFSET = 220
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    RECALL_MESSAGE = 370
    QUERY_ASSIGNMENT = 400
    SET_MESSAGE_REQUEST_MODE = 401
    GET_ALL_MESSAGE_REQUEST_MODE = 402
    GET_BROKER_MEMBER_GROUP = 901
    BROKER_HEARTBEAT = 904
    EXCHANGE_BROKER_HA_INFO = 906
    GET_BROKER_HA_STATUS = 907
    POP_MESSAGE = 200_050
    ACK_MESSAGE = 200_051
    CHANGE_MESSAGE_INVISIBLETIME = 200_053
    NOTIFICATION = 200_054
    POLLING_INFO = 200_055
    BATCH_ACK_MESSAGE = 200_151
    TOWLINE = 30_001  # a message of our own protocol (`wire_message`)


PULLS: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


class ResponseCode(IntEnum):
    """What became of a request."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210


class RequestRefused(TowlineError, remedy=Remedy.FIX_CALL):
    """A request that is answered by a code and a sentence."""

    code: int
    sentence: str
    template = "{sentence}"
    advice = "change the request as the sentence says"


_OF_PUT: Final = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.NOT_MASTER: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
    PutStatus.SYSTEM_BUSY: ResponseCode.SYSTEM_BUSY,
    PutStatus.EXPIRED: ResponseCode.SYSTEM_BUSY,
    PutStatus.WHEEL_TIMER_FLOW_CONTROL: ResponseCode.SYSTEM_BUSY,
    PutStatus.DISK_FULL: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.TOPIC_NOT_EXIST: ResponseCode.TOPIC_NOT_EXIST,
    PutStatus.UNKNOWN_QUEUE: ResponseCode.INVALID_PARAMETER,
    PutStatus.NO_PERMISSION: ResponseCode.NO_PERMISSION,
}


_AS_PUT: Final = {
    ResponseCode.SUCCESS: PutStatus.PUT_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: PutStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: PutStatus.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: PutStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.MESSAGE_ILLEGAL: PutStatus.MESSAGE_ILLEGAL,
    ResponseCode.SERVICE_NOT_AVAILABLE: PutStatus.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_BUSY: PutStatus.SYSTEM_BUSY,
    ResponseCode.TOPIC_NOT_EXIST: PutStatus.TOPIC_NOT_EXIST,
    ResponseCode.INVALID_PARAMETER: PutStatus.UNKNOWN_QUEUE,
    ResponseCode.NO_PERMISSION: PutStatus.NO_PERMISSION,
}


def put_status_of(code: int) -> PutStatus:
    """What a broker's answer to a send says of it: UNKNOWN_ERROR where no status of a put does."""
    return _AS_PUT.get(code, PutStatus.UNKNOWN_ERROR)  # type: ignore[call-overload,no-any-return]


def pull_status_of(code: int, offset: int, following: int) -> GetStatus | None:
    """What a broker's answer to a pull from `offset` says, which goes on at `following`; None for a refusal."""
    match code:
        case ResponseCode.SUCCESS:
            return GetStatus.FOUND
        case ResponseCode.PULL_NOT_FOUND | ResponseCode.SYSTEM_BUSY:
            return GetStatus.OFFSET_OVERFLOW_ONE
        case ResponseCode.PULL_RETRY_IMMEDIATELY:
            return GetStatus.NO_MATCHED_MESSAGE
        case ResponseCode.PULL_OFFSET_MOVED:
            return GetStatus.OFFSET_TOO_SMALL if following > offset else GetStatus.OFFSET_OVERFLOW_BADLY
    return None


def response_of_pull(status: GetStatus, offset: int) -> ResponseCode:
    """The code for a pull that asked for this offset (spec 10.3)."""
    match status:
        case GetStatus.FOUND:
            return ResponseCode.SUCCESS
        case GetStatus.MESSAGE_WAS_REMOVING | GetStatus.NO_MATCHED_MESSAGE:
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        case GetStatus.NO_MATCHED_LOGIC_QUEUE | GetStatus.NO_MESSAGE_IN_QUEUE:
            return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
        case GetStatus.OFFSET_FOUND_NULL | GetStatus.OFFSET_OVERFLOW_ONE:
            return ResponseCode.PULL_NOT_FOUND
        case GetStatus.OFFSET_OVERFLOW_BADLY | GetStatus.OFFSET_TOO_SMALL | GetStatus.OFFSET_RESET:
            return ResponseCode.PULL_OFFSET_MOVED
    return ResponseCode.SUBSCRIPTION_PARSE_FAILED


def response_of(status: PutStatus) -> ResponseCode:
    """The code that tells a producer what became of a put: SYSTEM_ERROR where RocketMQ has none of its own."""
    return _OF_PUT.get(status, ResponseCode.SYSTEM_ERROR)
