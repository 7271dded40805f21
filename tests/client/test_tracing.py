"""The trace context of W3C in messages: what is put into their properties, and what is made of them."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagate import get_global_textmap
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from towline.client.message import Message, ReceivedMessage
from towline.client.producer import Producer
from towline.client.tracing import extract, inject
from towline.format.record.properties import encode as encode_properties
from towline.format.record.record import Record, encode

HERE = SpanContext(0x11, 0x22, False, TraceFlags(1), TraceState([("vendor", "v")]))
PARENT = "00-00000000000000000000000000000011-0000000000000022-01"
PLAIN = "from towline import Producer; Producer('tcp://127.0.0.1:1').close()"
WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
from towline import Producer
Producer("tcp://127.0.0.1:1").close()
try:
    Producer("tcp://127.0.0.1:1", tracing=True)
except Exception as error:
    print(error.describe())
"""


@pytest.fixture
def here() -> Iterator[None]:
    """Within a span, and with something in its baggage."""
    inside = baggage.set_baggage("user", "ann", trace.set_span_in_context(NonRecordingSpan(HERE)))
    token = context.attach(inside)
    yield
    context.detach(token)


def received(**properties: str) -> ReceivedMessage:
    return ReceivedMessage(encode(Record(topic=b"t", body=b"body", properties=encode_properties(properties.items()))))


@pytest.mark.usefixtures("here")
def test_a_message_gets_the_context_of_its_caller_beside_its_own_properties() -> None:
    message = Message("t", b"body", key=7, properties={"a": "b"})
    traced = inject(message)
    assert traced.properties == {"a": "b", "traceparent": PARENT, "tracestate": "vendor=v"}
    assert message.properties == {"a": "b"}
    assert (traced.key, traced.body) == (7, b"body")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("own", ["traceparent", "tracestate"])
def test_a_context_that_a_message_has_stays(own: str) -> None:
    message = Message("t", b"body", properties={own: "mine"})
    assert inject(message) is message


def test_outside_of_a_span_a_message_is_left_as_it_is() -> None:
    message = Message("t", b"body")
    assert inject(message) is message


@pytest.mark.usefixtures("here")
def test_another_propagator_says_what_goes_with_it() -> None:
    assert inject(Message("t", b""), W3CBaggagePropagator()).properties == {"baggage": "user=ann"}
    everything = inject(Message("t", b""), get_global_textmap()).properties
    assert everything is not None
    assert everything.keys() == {"traceparent", "tracestate", "baggage"}
    read = extract(received(baggage="user=ann"), W3CBaggagePropagator())
    assert baggage.get_baggage("user", read) == "ann"


def test_a_reader_gets_the_context_that_the_producer_was_in() -> None:
    found = trace.get_current_span(extract(received(traceparent=PARENT, tracestate="vendor=v"))).get_span_context()
    assert (found.trace_id, found.span_id, found.is_remote) == (HERE.trace_id, HERE.span_id, True)
    assert found.trace_state == HERE.trace_state


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("properties", [{}, {"traceparent": "nonsense"}, {"tracestate": "a=b"}])
def test_what_cannot_be_read_is_no_context_and_not_that_of_the_reader(properties: dict[str, str]) -> None:
    assert not trace.get_current_span(extract(received(**properties))).get_span_context().is_valid


@pytest.mark.usefixtures("here")
def test_a_producer_does_it_where_it_is_wanted() -> None:
    for tracing, names in (
        (False, set()),
        (True, {"traceparent", "tracestate"}),
        (W3CBaggagePropagator(), {"baggage"}),
    ):
        with Producer("tcp://127.0.0.1:1", tracing=tracing) as producer:
            assert set(producer.prepared(Message("t", b"")).properties or {}) == names


def test_who_does_not_want_it_does_not_load_it() -> None:
    program = f"{PLAIN}; import sys; print([name for name in sys.modules if 'opentelemetry' in name])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_without_the_library_it_is_refused_with_the_extra_that_brings_it() -> None:
    said = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True).stdout
    assert said == "the package opentelemetry-api is not installed: pip install 'towline[tracing]'\n"
