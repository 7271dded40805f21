"""Towline: a message store in RocketMQ's file format. What a program needs of its client is named here.

    from towline import Consumer, Message, Producer

Each name is loaded when it is first asked for, so that `import towline` by itself costs nothing.
"""

from importlib import import_module

TYPE_CHECKING = False  # as `typing` has it, without loading that
if TYPE_CHECKING:
    from towline.client.admin import AdminClient as AdminClient
    from towline.client.cluster_admin import ClusterAdmin as ClusterAdmin
    from towline.client.columns import Columns as Columns
    from towline.client.consumer import Consumer as Consumer
    from towline.client.errors import DamagedMessage as DamagedMessage
    from towline.client.errors import DeliveryTimeout as DeliveryTimeout
    from towline.client.errors import NotIdempotent as NotIdempotent
    from towline.client.errors import ProducerFull as ProducerFull
    from towline.client.errors import PutRefused as PutRefused
    from towline.client.errors import RequestTimeout as RequestTimeout
    from towline.client.errors import StoreBusy as StoreBusy
    from towline.client.errors import UnreadableValue as UnreadableValue
    from towline.client.errors import UnserializableValue as UnserializableValue
    from towline.client.group.consumer import GroupConsumer as GroupConsumer
    from towline.client.group.message import GroupMessage as GroupMessage
    from towline.client.group.subscription import Sql as Sql
    from towline.client.message import Message as Message
    from towline.client.message import ReceivedMessage as ReceivedMessage
    from towline.client.producer import Producer as Producer
    from towline.client.request import reply as reply
    from towline.client.send.futures import SendFuture as SendFuture
    from towline.client.send.futures import SendResult as SendResult
    from towline.client.transaction import State as State
    from towline.client.transaction import Transaction as Transaction
    from towline.client.transaction import TransactionProducer as TransactionProducer
    from towline.client.transaction import TransactionResult as TransactionResult
    from towline.errors import LinkRefused as LinkRefused
    from towline.errors import NoAnswer as NoAnswer
    from towline.errors import OutOfOrderSequence as OutOfOrderSequence
    from towline.errors import ProducerFenced as ProducerFenced
    from towline.errors import TowlineError as TowlineError
    from towline.errors import UnknownProducer as UnknownProducer
    from towline.format.wire.status import PutStatus as PutStatus

    __version__: str

_MODULES = {
    "AdminClient": "towline.client.admin",
    "ClusterAdmin": "towline.client.cluster_admin",
    "Columns": "towline.client.columns",
    "Consumer": "towline.client.consumer",
    "DamagedMessage": "towline.client.errors",
    "DeliveryTimeout": "towline.client.errors",
    "GroupConsumer": "towline.client.group.consumer",
    "GroupMessage": "towline.client.group.message",
    "LinkRefused": "towline.errors",
    "Message": "towline.client.message",
    "NoAnswer": "towline.errors",
    "NotIdempotent": "towline.client.errors",
    "OutOfOrderSequence": "towline.errors",
    "Producer": "towline.client.producer",
    "ProducerFenced": "towline.errors",
    "ProducerFull": "towline.client.errors",
    "PutRefused": "towline.client.errors",
    "PutStatus": "towline.format.wire.status",
    "ReceivedMessage": "towline.client.message",
    "RequestTimeout": "towline.client.errors",
    "SendFuture": "towline.client.send.futures",
    "SendResult": "towline.client.send.futures",
    "Sql": "towline.client.group.subscription",
    "State": "towline.client.transaction",
    "StoreBusy": "towline.client.errors",
    "TowlineError": "towline.errors",
    "Transaction": "towline.client.transaction",
    "TransactionProducer": "towline.client.transaction",
    "TransactionResult": "towline.client.transaction",
    "UnknownProducer": "towline.errors",
    "UnreadableValue": "towline.client.errors",
    "UnserializableValue": "towline.client.errors",
    "reply": "towline.client.request",
}

__all__ = [*sorted(_MODULES), "__version__"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        found: object = import_module("importlib.metadata").version("towline")
    elif name in _MODULES:
        found = getattr(import_module(_MODULES[name]), name)
    else:
        raise AttributeError(f"module 'towline' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
