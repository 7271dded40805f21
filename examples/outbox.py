"""The transactional outbox: a row and its message are written by one transaction of the database (here SQLite).

    python examples/outbox.py tcp://127.0.0.1:10911

A relay sends what stands in the table `outbox` and deletes it afterwards. If it dies between the two it sends again,
with the same unique key, which is that of the row: readers know doubles by it. Where no table can be added, a
TransactionProducer does it the other way round (docs/transactions.md).
"""

import sqlite3
import sys
import uuid

from towline import Consumer, Message, Producer

TOPIC = "bookings"


def book(database: sqlite3.Connection, what: str) -> None:
    with database:  # both rows, or none
        database.execute("INSERT INTO booking (what) VALUES (?)", (what,))
        database.execute("INSERT INTO outbox (unique_key, body) VALUES (?, ?)", (uuid.uuid4().hex.upper(), what))


def relay(database: sqlite3.Connection, producer: Producer, *, dies: bool = False) -> int:
    rows = database.execute("SELECT number, unique_key, body FROM outbox ORDER BY number").fetchall()
    for number, unique_key, body in rows:
        message = Message(TOPIC, body.encode(), properties={"UNIQ_KEY": unique_key})
        if producer.send(message).acknowledged and not dies:
            with database:
                database.execute("DELETE FROM outbox WHERE number = ?", (number,))
    return len(rows)


def main(endpoint: str) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE booking (what TEXT)")
    database.execute("CREATE TABLE outbox (number INTEGER PRIMARY KEY, unique_key TEXT, body TEXT)")
    for what in ("a room", "a table", "a car"):
        book(database, what)
    with Producer(endpoint) as producer:
        sent = relay(database, producer, dies=True) + relay(database, producer)
    seen: dict[str | None, str] = {}
    came = 0
    with Consumer(endpoint, TOPIC, start="first") as consumer:
        while came < sent and (messages := consumer.poll(10_000)):
            came += len(messages)
            seen |= {message.unique_key: message.body.decode() for message in messages}
    left = database.execute("SELECT count(*) FROM outbox").fetchone()[0]
    print(f"sent {sent}, read {came}, different ones: {sorted(seen.values())}; left in the outbox: {left}")


if __name__ == "__main__":
    main(sys.argv[1])
