"""An application's values as bodies, and bodies as values; a message's key as it is stored, and its trace context."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, Final, Literal, Protocol, TypeAlias

from towline.errors import IllegalProperty, MissingPackage

from .errors import UnserializableValue
from .message import Message

JSON: Final = "json"

Serializer: TypeAlias = Callable[[Any], bytes]
Deserializer: TypeAlias = Callable[[bytes], Any]
Traced: TypeAlias = Callable[[Message], Message]
_TRACING: Final = "towline.client.tracing"


class Propagator(Protocol):
    """What writes the context of its caller into a dict of texts, as a TextMapPropagator of OpenTelemetry does."""

    def inject(self, carrier: dict[str, str]) -> None: ...


def serializer_of(given: Serializer | Literal["json"] | None) -> Serializer | None:
    """The function that makes a body of a value; None where bodies are given. Raises ValueError."""
    found: Serializer | None = _function(given, "value_serializer", "dumps")
    return found


def deserializer_of(given: Deserializer | Literal["json"] | None) -> Deserializer | None:
    """The function that makes a value of a body; None where bodies are wanted. Raises ValueError."""
    found: Deserializer | None = _function(given, "value_deserializer", "loads")
    return found


def tracer_of(given: Propagator | bool) -> Traced | None:
    """The function that gives a message the trace context of its caller; None where that is not wanted. Raises
    MissingPackage."""
    if given is False:
        return None
    try:
        inject: Any = import_module(_TRACING).inject  # loaded by those alone who want it
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        raise MissingPackage("opentelemetry-api", "tracing") from None
    traced: Traced = inject if given is True else partial(inject, propagator=given)
    return traced


def _function(given: object, option: str, of_json: str) -> Any:
    if given == JSON:
        return getattr(import_module("orjson"), of_json)  # loaded by those alone who want it
    if given is None or callable(given):
        return given
    raise ValueError(f"{option} is {given!r}; {JSON!r} and functions are allowed")


def prepared(message: Message, serialize: Serializer | None) -> Message:
    """The message with a body of bytes, and its key as the sharding key; itself where it has both.

    Raises UnserializableValue, IllegalProperty.
    """
    body, sharding_key = message.body, message.sharding_key
    if serialize is not None:
        try:
            body = serialize(body)
        except Exception as error:
            raised = f"value_serializer raised {type(error).__name__}: {error}"
            raise UnserializableValue(message.topic, raised) from error
    if not isinstance(body, bytes | bytearray | memoryview):
        whose = "the producer has no value_serializer" if serialize is None else "the value_serializer made that"
        raise UnserializableValue(message.topic, f"it is a {type(body).__name__}, not bytes, and {whose}")
    if message.key is not None:
        if sharding_key is not None:
            raise IllegalProperty("key", "the message has a sharding_key too; they are the same, give one of them")
        sharding_key = _text(message.key)
    elif serialize is None:
        return message
    return replace(message, body=body, key=None, sharding_key=sharding_key)


def _text(key: object) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            raise IllegalProperty("key", "its bytes are no UTF-8, and a key is stored as text") from None
    raise IllegalProperty("key", f"it is a {type(key).__name__}; str, int and bytes of UTF-8 are keys")
