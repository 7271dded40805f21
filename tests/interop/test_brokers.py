"""The store of a whole broker, killed while it took messages, and a broker on a store that Towline wrote."""

from dataclasses import replace

import pytest

from .brokers import BROKER, RealBroker
from .checks import check_read, divided, mixed_specs
from .model import LONGEST, QUEUES, Mixture
from .releases import NEWEST_BROKER

TOPICS = ("Plain", "Orders-EU_1", LONGEST)  # clients do not send to retry topics

OURS = "Made-by-Towline"


@pytest.mark.parametrize("release", NEWEST_BROKER, ids=str)
def test_a_killed_broker_goes_on_as_towline_and_a_broker_takes_over_again(release, start_jvm, tmp_path, towline):
    queues = [(topic, queue_id) for topic in (*TOPICS, OURS) for queue_id in range(QUEUES)]
    messages = Mixture(5, topics=TOPICS, empty=0.0)  # a broker of 5.5 fails at a request without a body
    sent, specs = mixed_specs(messages, 400, 30)
    jvm = start_jvm(release, BROKER)
    RealBroker(jvm, towline.root, queues).open()
    sent, unpromised = divided(sent, specs, jvm.stream_until_killed(specs, len(specs) * 2 // 3))
    assert (towline.root / "abort").exists()

    with towline.running():
        found = check_read(towline, sent, unpromised)
        keys = {each["properties"]["UNIQ_KEY"] for each in found}
        sent += [message for message in unpromised if message.key in keys]
        more = messages.take(200) + [replace(message, topic=OURS) for message in messages.take(50)]
        towline.send(more)
        sent += more
        found = towline.read()

    broker = RealBroker(start_jvm(release, BROKER), towline.root, queues)
    broker.open()
    assert check_read(broker, sent) == found
    broker.close()
