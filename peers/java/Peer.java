package towline.peers;

import java.io.IOException;
import java.util.function.Consumer;

/**
 * A system's own client, which may be connected again after it was closed. One thread calls it; it tells of what was
 * acknowledged from any thread.
 */
interface Peer extends AutoCloseable {
    /** What becomes of messages that were sent together. */
    interface Outcome {
        void acknowledged();

        void failed(Throwable trouble);
    }

    /** Reads every queue of a topic. */
    interface Reader extends AutoCloseable {
        /** The bodies that come within the time, none where none does; how many they were. */
        int read(long withinMs, Consumer<byte[]> each) throws Exception;

        @Override
        void close();
    }

    /** `address` is what the server's side said; nothing need listen there yet. */
    void connect(String address, Work work) throws Exception;

    /** Makes a topic, or finds it; returns when messages can be put. */
    void makeTopic(String topic, int queues) throws Exception;

    /** Whether `send` takes several messages together; otherwise the client makes batches of what it is sent. */
    boolean takesBatches();

    /** Sends bodies to one queue; returns when the client has taken them. */
    void send(String topic, int queue, byte[][] bodies, Outcome outcome) throws Exception;

    /** Puts messages, several together where the client can, and waits until they are acknowledged. */
    void put(String topic, int queue, byte[][] bodies) throws Exception;

    Reader reader(String topic, int queues, boolean fromTheEnd) throws Exception;

    /** Reads from the beginning as a consumer does that is called for each message; `each` by many threads at once. */
    default Closing push(String topic, Consumer<byte[]> each) throws Exception {
        throw new UnsupportedOperationException("this client calls nobody");
    }

    /** What ends by its own. */
    interface Closing extends AutoCloseable {
        @Override
        void close();
    }

    @Override
    void close();

    static IOException notAcknowledged(Object what) {
        return new IOException("not acknowledged: " + what);
    }
}
