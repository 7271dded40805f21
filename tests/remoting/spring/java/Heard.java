package towline.remoting;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/** What each listener was given; what came twice, as it may, is one. */
final class Heard {
    private static final Map<String, Set<String>> SAID = new HashMap<>();

    private Heard() {
    }

    /** How many messages are meant for each listener. */
    static Map<String, Integer> expected() {
        return new TreeMap<>(Map.of("shared", 7, "typed", 1, "whole", 1, "broadcast", 7, "ordered", 9, "sql", 3,
                "again", 2, "late", 1, "transaction", 2));
    }

    static synchronized void add(String listener, String said) {
        SAID.computeIfAbsent(listener, name -> new TreeSet<>()).add(said);
        Heard.class.notifyAll();
    }

    /** Sorted by the text: where order is promised, the text has its number behind its key. */
    static synchronized Set<String> await(String listener, int count, long waitMs) throws InterruptedException {
        long until = System.currentTimeMillis() + waitMs;
        Set<String> said = SAID.computeIfAbsent(listener, name -> new TreeSet<>());
        while (said.size() < count && System.currentTimeMillis() < until) {
            Heard.class.wait(until - System.currentTimeMillis() + 1);
        }
        return new TreeSet<>(said);
    }
}
