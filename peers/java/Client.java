package towline.peers;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** A client process that speaks as peers/client.py does. The first argument names the Peer. */
final class Client {
    private static final String TOPIC = "bench";
    private static final String WARM_TOPIC = "warm";
    private static final String FIRST_TOPIC = "first"; // what is tried more than once may be stored more than once
    private static final long STEP_MS = 5;
    private static final long FIRST_S = 120;
    private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();
    private final Set<String> warm = new HashSet<>(); // kinds of work
    private final PrintStream said;
    private final Peer peer;

    private Client(Peer peer, PrintStream said) {
        this.peer = peer;
        this.said = said;
    }

    public static void main(String[] names) throws Exception {
        PrintStream said = System.out;
        System.setOut(System.err); // whatever a library prints is no answer
        Peer peer = (Peer) Class.forName("towline.peers." + names[0]).getDeclaredConstructor().newInstance();
        int status = new Client(peer, said).run();
        Runtime.getRuntime().halt(status); // threads of a library do not keep us
    }

    private int run() throws InterruptedException {
        Thread reading = new Thread(this::read);
        reading.setDaemon(true);
        reading.start();
        try {
            while (true) {
                Map<String, String> told = Work.fields(lines.take()); // their end is the end of this process
                Work work = Work.read(told);
                say(work.kind().equals("first") ? first(told.get("address"), work) : done(told, work));
                peer.close(); // afterwards: its end is not what is timed
            }
        } catch (Exception met) {
            met.printStackTrace();
            say("{\"error\": \"" + met.toString().replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"}");
            return 1;
        } finally {
            peer.close();
        }
    }

    private String done(Map<String, String> told, Work work) throws Exception {
        peer.connect(told.get("address"), work);
        peer.makeTopic(TOPIC, work.queues());
        warm(work);
        return Works.done(peer, work, TOPIC, this::ready);
    }

    /**
     * The compiler has seen the hot paths before the clock runs: those of this process, and of the server, for which a
     * full window comes first. Each kind of work once.
     */
    private void warm(Work work) throws Exception {
        if (work.kind().equals("fill") || !warm.add(work.kind())) {
            return;
        }
        Work small = work.forWarmth();
        if (work.reads()) {
            Works.done(peer, small, TOPIC, () -> { });
            return;
        }
        peer.makeTopic(WARM_TOPIC, small.queues());
        if (!work.kind().equals("put") && warm.add("server")) {
            Works.done(peer, small.pipelined(), WARM_TOPIC, () -> { });
        }
        Works.done(peer, small, WARM_TOPIC, () -> { });
        if (work.kind().equals("tail")) {
            warm.add("rate"); // which is the same without a reader
        }
    }

    /** Nothing may listen yet: tries until one message is acknowledged. */
    private String first(String address, Work work) throws Exception {
        peer.connect(address, work);
        peer.makeTopic(FIRST_TOPIC, 1);
        peer.close();
        ready();
        long start = System.nanoTime();
        peer.connect(address, work);
        while (true) {
            try {
                peer.put(FIRST_TOPIC, 0, new byte[][] {work.letters()});
                break;
            } catch (Exception met) {
                if (System.nanoTime() - start > FIRST_S * 1_000_000_000L) {
                    throw met;
                }
                Thread.sleep(STEP_MS);
            }
        }
        return Times.answer(1, System.nanoTime() - start, "[]", "[]");
    }

    private void ready() {
        say("\"ready\"");
        try {
            lines.take();
        } catch (InterruptedException met) {
            throw new IllegalStateException(met);
        }
    }

    private void say(String line) {
        said.println(line);
        said.flush();
    }

    /** Lines as they come. Their end is the end of whoever writes them, and ours. */
    private void read() {
        try (BufferedReader told = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = told.readLine(); line != null; line = told.readLine()) {
                lines.add(line);
            }
        } catch (IOException met) {
            met.printStackTrace();
        }
        Runtime.getRuntime().halt(1);
    }
}
