package towline.peers;

import java.util.Arrays;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;

/** Does a work on a topic, once. */
final class Works {
    private static final long SILENT_S = 60; // a broker that makes a thousand partitions on a busy disk
    private static final long POLL_MS = 100;
    private static final long REPLAY_SILENT_NS = 5_000_000_000L;
    private static final long PUSH_SILENT_NS = 60_000_000_000L; // its first messages come after a rebalance, of which there is one in 20 s
    private static final int FIRSTS = 64; // of several threads one has the first message
    private static final int NUMBER = 8; // letters of a message's number, and of what tells its work from others
    private final Peer peer;
    private final Work work;
    private final String topic;
    private final Times times = new Times();
    private final AtomicReference<Throwable> trouble = new AtomicReference<>();
    private final byte[] body;

    private Works(Peer peer, Work work, String topic) {
        this.peer = peer;
        this.work = work;
        this.topic = topic;
        this.body = work.letters();
        write(body, NUMBER, (int) System.nanoTime());
    }

    /** The answer. `go` is called when the clock may be started. */
    static String done(Peer peer, Work work, String topic, Runnable go) throws Exception {
        Works works = new Works(peer, work, topic);
        switch (work.kind()) {
            case "put":
            case "fill":
            case "java-async":
                go.run();
                return works.windowed();
            case "single":
            case "java-sync":
            case "java-batch":
                go.run();
                return works.single();
            case "rate":
                go.run();
                return works.rated(new Semaphore(0), true);
            case "tail":
                return works.tail(go);
            case "replay":
                return works.replay(go);
            case "java-push":
                return works.pushed(go);
            default:
                throw new IllegalArgumentException(work.kind() + " is not for a Java client");
        }
    }

    private String windowed() throws Exception {
        int total = work.total();
        int together = peer.takesBatches() ? Math.min(work.together(), work.window()) : 1;
        byte[][] bodies = new byte[together][];
        Arrays.fill(bodies, body);
        Semaphore room = new Semaphore(work.window());
        long start = System.nanoTime();
        long until = start + (long) (work.seconds() * 1e9);
        int queue = 0;
        while (total > 0 ? times.size() < total : System.nanoTime() < until) {
            int count = total > 0 ? Math.min(together, total - times.size()) : together;
            await(room, count);
            int first = times.begin(System.nanoTime(), count);
            peer.send(topic, queue, count == together ? bodies : Arrays.copyOf(bodies, count), timed(first, count, room));
            queue = (queue + 1) % work.queues();
        }
        await(room, work.window());
        return times.answer(start);
    }

    /** One call after the other, each with as many messages as go together. */
    private String single() throws Exception {
        byte[][] bodies = new byte[work.together()][];
        Arrays.fill(bodies, body);
        int queue = 0;
        long start = System.nanoTime();
        long until = start + (long) (work.seconds() * 1e9);
        for (long now = start; now < until; ) {
            int first = times.begin(now, bodies.length);
            peer.put(topic, queue, bodies);
            queue = (queue + 1) % work.queues();
            now = System.nanoTime();
            times.end(first, bodies.length, now);
        }
        return times.answer(start);
    }

    /** Open loop: a message is sent when it is due, or as soon as can be, and timed from when it was due. */
    private String rated(Semaphore finished, boolean untilAcknowledged) throws Exception {
        int total = work.total();
        double step = 1e9 / work.rate();
        long start = System.nanoTime();
        for (int number = 0; number < total; number++) {
            long due = start + (long) (number * step);
            for (long now = System.nanoTime(); now < due; now = System.nanoTime()) {
                LockSupport.parkNanos(due - now);
            }
            times.begin(due, 1);
            Peer.Outcome outcome = untilAcknowledged ? timed(number, 1, finished) : watched();
            peer.send(topic, number % work.queues(), new byte[][] {numbered(number)}, outcome);
        }
        await(finished, total);
        return times.answer(start);
    }

    /** As `rated`, but a message has ended when a reader has it that began to wait before the first was sent. */
    private String tail(Runnable go) throws Exception {
        Semaphore arrived = new Semaphore(0);
        try (Peer.Reader reader = peer.reader(topic, work.queues(), true)) {
            Thread reading = new Thread(() -> readNumbered(reader, arrived));
            reading.setDaemon(true);
            reading.start();
            go.run();
            String answer = rated(arrived, false);
            reading.join();
            return answer;
        }
    }

    private void readNumbered(Peer.Reader reader, Semaphore arrived) {
        int[] left = {work.total()};
        try {
            while (left[0] > 0 && trouble.get() == null) {
                long[] now = {0};
                reader.read(POLL_MS, each -> {
                    if (!isOurs(each)) {
                        return; // a broker's end of a queue is behind what was put just before
                    }
                    now[0] = now[0] == 0 ? System.nanoTime() : now[0];
                    times.end(numberOf(each), 1, now[0]);
                    left[0]--;
                    arrived.release();
                });
            }
        } catch (Exception met) {
            trouble.compareAndSet(null, met);
        }
    }

    /** From the beginning until as many came, or none comes any more. */
    private String replay(Runnable go) throws Exception {
        try (Peer.Reader reader = peer.reader(topic, work.queues(), false)) {
            go.run();
            long start = System.nanoTime();
            long last = start;
            int done = 0;
            while (done < work.count() && System.nanoTime() - last < REPLAY_SILENT_NS) {
                int count = reader.read(POLL_MS, Works::looked);
                if (count > 0) {
                    done += count;
                    last = System.nanoTime();
                }
            }
            return Times.answer(done, last - start, "[]", "[]");
        }
    }

    /** As `replay`, by the consumer's own threads; the clock starts with the first message. */
    private String pushed(Runnable go) throws Exception {
        go.run();
        AtomicInteger done = new AtomicInteger();
        AtomicLong first = new AtomicLong(Long.MAX_VALUE);
        AtomicLong last = new AtomicLong(System.nanoTime());
        Consumer<byte[]> each = found -> {
            looked(found);
            long now = System.nanoTime();
            if (done.getAndIncrement() < FIRSTS) {
                first.accumulateAndGet(now, Math::min);
            }
            last.accumulateAndGet(now, Math::max);
        };
        try (Peer.Closing consumer = peer.push(topic, each)) {
            while (done.get() < work.count() && System.nanoTime() - last.get() < PUSH_SILENT_NS) {
                Thread.sleep(1);
            }
        }
        return Times.answer(done.get(), Math.max(1, last.get() - first.get()), "[]", "[]");
    }

    private static void looked(byte[] body) {
        if (body.length == 0) {
            throw new IllegalStateException("a message without a body was never put");
        }
    }

    private byte[] numbered(int number) {
        byte[] made = body.clone();
        write(made, 0, number);
        return made;
    }

    private static void write(byte[] target, int start, int number) {
        for (int at = start + NUMBER - 1, left = number; at >= start; at--, left >>>= 4) {
            target[at] = (byte) ('a' + (left & 15));
        }
    }

    private boolean isOurs(byte[] found) {
        return Arrays.equals(found, NUMBER, 2 * NUMBER, body, NUMBER, 2 * NUMBER);
    }

    private static int numberOf(byte[] body) {
        int number = 0;
        for (int at = 0; at < NUMBER; at++) {
            number = number << 4 | body[at] - 'a';
        }
        return number;
    }

    private Peer.Outcome timed(int first, int count, Semaphore finished) {
        return new Peer.Outcome() {
            @Override
            public void acknowledged() {
                times.end(first, count, System.nanoTime());
                finished.release(count);
            }

            @Override
            public void failed(Throwable met) {
                trouble.compareAndSet(null, met);
            }
        };
    }

    private Peer.Outcome watched() {
        return new Peer.Outcome() {
            @Override
            public void acknowledged() {
                // The reader says when it is over.
            }

            @Override
            public void failed(Throwable met) {
                trouble.compareAndSet(null, met);
            }
        };
    }

    /** Throws what a send met, or TimeoutException where nothing happens. */
    private void await(Semaphore permits, int count) throws Exception {
        long silentFrom = System.nanoTime();
        int before = permits.availablePermits();
        while (!permits.tryAcquire(count, POLL_MS, TimeUnit.MILLISECONDS)) {
            int now = permits.availablePermits();
            if (now != before) {
                before = now;
                silentFrom = System.nanoTime();
            }
            if (trouble.get() != null) {
                throw new IllegalStateException(trouble.get());
            }
            if (System.nanoTime() - silentFrom > SILENT_S * 1_000_000_000L) {
                throw new TimeoutException("the server says nothing for " + SILENT_S + " s");
            }
        }
        if (trouble.get() != null) {
            throw new IllegalStateException(trouble.get());
        }
    }
}
