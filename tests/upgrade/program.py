"""A program of the public client alone, which each version runs: it writes one of everything, and reads it back.

program.py fill ENDPOINT ROUND    writes, and prints what another version needs to go on: handles, transactions
program.py plain ENDPOINT ROUND TIMES    writes a lot to one topic
program.py read ENDPOINT OPEN     prints everything that readers see, and what groups have read
program.py end ENDPOINT FACTS     ends what `fill` left open: commits, cancels, reads on with the group
program.py await ENDPOINT TOPIC COUNT    waits for so many messages of a topic, and prints their bodies
"""

import json
import select
import sys
import time
import zlib

from towline import AdminClient, Consumer, GroupConsumer, Message, Producer, State, Transaction, TransactionProducer

TOPICS = {"plain": 4, "paid": 2, "later": 1}
COUNT = 120
FAR_MS = 3000 * 86_400_000  # a store that is kept is not to come to it
SOON_MS = 4_000  # longer than a node takes to be stopped and started
WAIT_MS = 200
END_S = 40.0
GROUP = "readers"


def make_topics(endpoint):
    with AdminClient(endpoint) as admin:
        known = {row["topic"] for row in admin.topics()}
        for topic in sorted(TOPICS.keys() - known):
            admin.create_topic(topic, TOPICS[topic])
        admin.configure_group(GROUP, retryMaxTimes=3)


def fill(endpoint, name):
    make_topics(endpoint)
    with AdminClient(endpoint) as admin:
        admin.create_topic(f"gone-{name}", 1)
    plain(endpoint, name)
    with Producer(endpoint) as producer:
        producer.send(Message(f"gone-{name}", b"of a topic that is deleted"))
        now = int(time.time() * 1000)
        producer.send(Message("later", f"{name}: by its level".encode(), delay_level=1))
        producer.send(Message("later", f"{name}: soon".encode(), deliver_at=now + SOON_MS))
        far = producer.send(Message("later", f"{name}: far".encode(), deliver_at=now + FAR_MS))
        gone = producer.send(Message("later", f"{name}: never".encode(), deliver_at=now + SOON_MS))
        assert producer.cancel(gone.handle).acknowledged
    with TransactionProducer(endpoint, "payers") as producer:
        for outcome in (State.COMMIT, State.ROLLBACK):
            producer.send(Message("paid", f"{name}: {outcome.value}".encode()), lambda message, end=outcome: end)
        opened, _ = producer.begin(Message("paid", f"{name}: open".encode(), keys=["open"]))
    with AdminClient(endpoint) as admin:
        admin.delete_topic(f"gone-{name}")
    taken = consume(endpoint, COUNT // 2)
    return {"handle": far.handle, "transaction": str(opened), "taken": taken}


def plain(endpoint, name):
    """Tags, keys, properties, sizes, every compression."""
    with Producer(endpoint) as producer:
        futures = [
            producer.send_async(
                Message(
                    "plain",
                    f"{name} {number} ".encode() * (1 + number % 40),
                    tags=("red", "blue", None)[number % 3],
                    keys=[f"{name}-{number}", "all"],
                    properties={"number": str(number), "who": name, "ünïcode": "ß"},
                    queue_id=number % 4,
                )
            )
            for number in range(COUNT)
        ]
        assert all(future.result(30).acknowledged for future in futures)
    for kind in ("zlib", "lz4", "zstd"):
        with Producer(endpoint, compression=kind, compress_above=1000) as producer:
            producer.send(Message("plain", f"{name} {kind} ".encode() * 500, tags=kind, queue_id=0))


def consume(endpoint, count):
    """Reads so many at least as the group, and commits; a message in ten is given back."""
    seen = []
    deadline = time.monotonic() + END_S
    with GroupConsumer(endpoint, GROUP, {"plain": "*"}, start="first") as consumer:
        while len(seen) < count and time.monotonic() < deadline:
            for message in consumer.poll(WAIT_MS):
                seen.append(message.unique_key)
        consumer.commit()
    return seen


def places_of(admin, key):
    return sorted([message.queue_id, message.queue_offset] for message in patiently(lambda: looked_up(admin, key)))


def looked_up(admin, key):
    found = admin.by_key("plain", key)
    return found if found.complete else None


def patiently(look):
    """What `look` finds, when it does."""
    deadline = time.monotonic() + END_S
    while not (found := look()) and time.monotonic() < deadline:
        select.select([], [], [], 0.05)
    return found


def read(endpoint, opened):
    """`opened`: how many transactions are to be open; the node may need a moment to see them."""
    found = {"topics": {}, "keys": {}}
    with AdminClient(endpoint) as admin:
        known = {row["topic"]: row for row in admin.topics() if not row["system"]}
        for topic in sorted(known):
            row = {name: known[topic][name] for name in ("read_queues", "write_queues", "perm")}
            bounds = {str(queue): list(pair) for queue, pair in sorted(admin.bounds(topic).items())}
            messages = read_topic(endpoint, topic, sum(high - low for low, high in bounds.values()))
            found["topics"][topic] = row | {"bounds": bounds, "messages": messages}
        found["offsets"] = admin.group_offsets(GROUP, "plain")
        found["open"] = opened and patiently(lambda: open_ones(admin, opened))
        for each in found["topics"]["plain"]["messages"][:: COUNT // 4]:
            for key in each["keys"]:
                if key != "all":
                    found["keys"][key] = places_of(admin, key)
    return found


def open_ones(admin, count):
    keys = sorted(row["key"] for row in admin.open_transactions())
    return keys if len(keys) == count else None


def read_topic(endpoint, topic, count):
    rows = []
    deadline = time.monotonic() + END_S
    with Consumer(endpoint, topic, start="first") as consumer:
        while len(rows) < count:
            assert time.monotonic() < deadline, f"{len(rows)} of {count} messages of {topic}"
            for message in consumer.poll(WAIT_MS):
                message.verify()
                rows.append(
                    {
                        "at": [message.queue_id, message.queue_offset, message.physical_offset],
                        "key": message.unique_key,
                        "tags": message.tags,
                        "keys": list(message.keys),
                        "properties": dict(sorted(message.properties.items())),
                        "stored": message.store_timestamp,
                        "body": [len(message.body), zlib.crc32(message.body)],
                    }
                )
    return sorted(rows, key=lambda row: row["at"])


def end(endpoint, facts):
    with TransactionProducer(endpoint, "payers") as producer:
        ended = producer.commit(Transaction.read(facts["transaction"]))
    with Producer(endpoint) as producer:
        cancelled = producer.cancel(facts["handle"])
    return {
        "ended": ended.name,
        "cancelled": cancelled.status.name,
        "taken": consume(endpoint, COUNT // 2),
    }


def await_bodies(endpoint, topic, count):
    bodies = []
    deadline = time.monotonic() + END_S
    with Consumer(endpoint, topic, start="first") as consumer:
        while len(bodies) < count and time.monotonic() < deadline:
            bodies += [message.body.decode() for message in consumer.poll(WAIT_MS)]
    return sorted(bodies)


def main(words):
    match words:
        case ["fill", endpoint, name]:
            return fill(endpoint, name)
        case ["plain", endpoint, name, times]:
            make_topics(endpoint)
            return [plain(endpoint, f"{name}-{each}") for each in range(int(times))]
        case ["read", endpoint, opened]:
            return read(endpoint, int(opened))
        case ["end", endpoint, facts]:
            return end(endpoint, json.loads(facts))
        case ["await", endpoint, topic, count]:
            return await_bodies(endpoint, topic, int(count))
    raise SystemExit(__doc__)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
