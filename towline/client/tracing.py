"""The trace context of W3C (`traceparent`, `tracestate`) in the properties of messages, by OpenTelemetry.

A producer with `tracing` loads this module, and a program that asks for the context of a message. It makes no spans:
those are the program's.
"""

from dataclasses import replace
from typing import Final

from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .message import Message, ReceivedMessage
from .values import Propagator

W3C: Final = TraceContextTextMapPropagator()


def inject(message: Message, propagator: Propagator = W3C) -> Message:
    """The message with the context of the caller among its properties; itself where there is none, or it has one."""
    carrier: dict[str, str] = {}
    propagator.inject(carrier)
    context = {name: value for name, value in carrier.items() if value}
    given = message.properties or {}
    if not context or not context.keys().isdisjoint(given):
        return message
    return replace(message, properties={**given, **context})


def extract(message: ReceivedMessage, propagator: TextMapPropagator = W3C) -> Context:
    """The context that the producer of a message sent it in, for the spans of who works on it.

    It is empty where the message has none, or none that can be read.
    """
    return propagator.extract(message.properties)
