"""A question goes through a topic, and its answer comes back to the producer that asked.

    python examples/request_reply.py tcp://127.0.0.1:10911

Whoever consumes the topic answers; it may be another process or, with the endpoint of a cluster, another machine.
"""

import sys
import threading

from towline import AdminClient, Consumer, Message, Producer, RequestTimeout, reply

TOPIC = "quotes"
RATES = {b"EUR/CHF": b"0.93", b"EUR/NOK": b"11.70"}


def answer(endpoint: str, count: int) -> None:
    with Producer(endpoint) as producer, Consumer(endpoint, TOPIC, start="first") as consumer:
        for number, message in enumerate(consumer, 1):
            if message.body in RATES:
                producer.send(reply(message, RATES[message.body]))
            if number == count:
                return


def main(endpoint: str) -> None:
    with AdminClient(endpoint) as admin:
        admin.create_topic(TOPIC, 1)
    answering = threading.Thread(target=answer, args=(endpoint, 3))
    answering.start()
    with Producer(endpoint) as producer:
        for pair in RATES:
            print(pair.decode(), producer.request(Message(TOPIC, pair), timeout_ms=60_000).body.decode())
        try:
            producer.request(Message(TOPIC, b"EUR/GBP"), timeout_ms=500)
        except RequestTimeout:
            print("EUR/GBP: no answer within 500 ms")
    answering.join()


if __name__ == "__main__":
    main(sys.argv[1])
