"""A message into the open batch of its queue, in the session and by the route that were found for it."""

from collections.abc import Callable

from towline.client.errors import NotIdempotent
from towline.client.message import Message
from towline.format.record.forms import StoredForm

from .forms import DelayLimits, handle_of, stored_form
from .futures import SendFuture, TopicRoute
from .group_session import GroupSession

Told = Callable[[SendFuture], object]


def put(
    session: GroupSession,
    route: TopicRoute,
    message: Message,
    urgent: bool,
    room_ms: int | None,
    told: Told | None = None,
    wakes: bool = True,
) -> SendFuture:
    """Encodes a message and gives it to the accumulator, whose `add` says what `room_ms`, `told` and `wakes` are.

    Raises MessageTooLarge, IllegalProperty, MalformedRecord, IllegalDelay, NotIdempotent, ProducerFull, ClientClosed.
    """
    queue_id = message.queue_id
    if queue_id is None:
        queue_id = route.sticky if message.sharding_key is None else route.queue_of(message.sharding_key)
    if message.delay_level is not None or message.deliver_at is not None:
        form = stored_form(message, queue_id, DelayLimits.of(session.welcome), session.io_thread.server_now_ms())
        if form is not None:
            route.rotate()  # the batch is the form's, and says nothing of when the next queue's turn comes
            return put_form(session, message, form, urgent, room_ms, queue_id, told, wakes)
    record, unique_key = route.encoder.encode(message, queue_id)
    return session.accumulator.add(route, queue_id, record, unique_key, urgent, room_ms, "", told, wakes)


def put_form(
    session: GroupSession,
    message: Message,
    form: StoredForm,
    urgent: bool,
    room_ms: int | None,
    queue_id: int = 0,
    told: Told | None = None,
    wakes: bool = True,
) -> SendFuture:
    """Likewise for a message in a form, which says for queue `queue_id` of its topic when it is delivered. Raises
    NotIdempotent."""
    if session.is_idempotent:
        raise NotIdempotent("messages that are delayed, timed, cancelled or half")
    route = session.form_routes.get(form.topic) or session.form_route(form.topic)
    record, unique_key = route.encoder.encode(message, form.queue_id, form.pairs)
    handle = handle_of(message, queue_id, unique_key)
    return session.accumulator.add(route, form.queue_id, record, unique_key, urgent, room_ms, handle, told, wakes)
