"""Two workers of one group share the queues of a topic; a job that fails comes again.

    python examples/worker_group.py tcp://127.0.0.1:10911

Workers are usually processes on several machines: the same lines run there. A message may come twice (docs/groups.md),
so what a worker does must bear that; here a set of numbers does.
"""

import sys
import threading

from towline import GroupConsumer, GroupMessage, Message, Producer

JOBS = 20
WAIT_S = 120


def main(endpoint: str) -> None:
    done: set[int] = set()
    failed: set[int] = set()
    all_done = threading.Event()

    def work(message: GroupMessage) -> None:
        number = int(message.body)
        if number == 7 and message.reconsume_times == 0:
            failed.add(number)
            message.retry_later(level=1)  # in a second; an exception would send it back as well, by level 3
            return
        done.add(number)
        if len(done) == JOBS:
            all_done.set()

    with Producer(endpoint) as producer:
        producer.send_batch([Message("jobs", b"%d" % number, key=number) for number in range(JOBS)])
    workers = [GroupConsumer(endpoint, "workers", "jobs", start="first") for _ in range(2)]
    threads = [threading.Thread(target=worker.listen, args=(work,)) for worker in workers]
    for thread in threads:
        thread.start()
    finished = all_done.wait(WAIT_S)
    for worker in workers:
        worker.close()  # ends `listen`, commits what is finished, and leaves the group
    for thread in threads:
        thread.join()
    print(f"{len(done)} of {JOBS} jobs are done: {finished}; came again: {sorted(failed)}")


if __name__ == "__main__":
    main(sys.argv[1])
