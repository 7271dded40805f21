"""An editor and a type checker know the options of the clients for asyncio: they are those of the threaded clients."""

import inspect
from typing import Any, get_type_hints, is_typeddict

import pytest

from towline.aio import AsyncAdminClient, AsyncConsumer, AsyncGroupConsumer, AsyncProducer
from towline.aio.options import AdminOptions, ConsumerOptions, GroupConsumerOptions, ProducerOptions
from towline.client.admin import AdminClient
from towline.client.consumer import Consumer
from towline.client.group.consumer import GroupConsumer
from towline.client.producer import Producer

PAIRS = [
    (AsyncProducer, Producer, ProducerOptions),
    (AsyncConsumer, Consumer, ConsumerOptions),
    (AsyncGroupConsumer, GroupConsumer, GroupConsumerOptions),
    (AsyncAdminClient, AdminClient, AdminOptions),
]


@pytest.mark.parametrize(("of_asyncio", "threaded", "options"), PAIRS)
def test_options_are_those_of_the_threaded_client(of_asyncio: type, threaded: type, options: type) -> None:
    hints = get_type_hints(threaded.__init__)
    parameters = inspect.signature(threaded.__init__).parameters.values()
    wanted = {each.name: hints[each.name] for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
    assert is_typeddict(options)
    assert get_type_hints(options) == wanted
    assert not options.__required_keys__  # type: ignore[attr-defined]
    assert get_type_hints(of_asyncio.__init__)["options"].__args__ == (options,)


@pytest.mark.parametrize(("of_asyncio", "threaded", "options"), PAIRS)
def test_what_is_given_by_its_place_is_the_same(of_asyncio: type, threaded: type, options: type) -> None:
    assert _by_place(of_asyncio) == _by_place(threaded)


def _by_place(client: type) -> dict[str, Any]:
    hints = get_type_hints(client.__init__)
    parameters = inspect.signature(client.__init__).parameters.values()
    places = [each.name for each in parameters if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    return {name: hints[name] for name in places if name != "self"}
