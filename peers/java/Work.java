package towline.peers;

import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** What is to be done, as plan.py's Work says it. */
record Work(
    String kind, int body, int window, double seconds, int count, double rate, int queues, int together) {
    private static final double WARM_S = 3;
    private static final int WARM_COUNT = 200_000;
    private static final int WARM_QUEUES = 100;
    private static final Pattern FIELD = Pattern.compile("\"(\\w+)\":\\s*(?:\"([^\"]*)\"|([-\\w.+]+))");

    static Work read(Map<String, String> told) {
        return new Work(
            told.get("kind"),
            Integer.parseInt(told.get("body")),
            Integer.parseInt(told.get("window")),
            Double.parseDouble(told.get("seconds")),
            Integer.parseInt(told.get("count")),
            Double.parseDouble(told.get("rate")),
            Integer.parseInt(told.get("queues")),
            Integer.parseInt(told.get("together")));
    }

    /** The fields of a JSON object and of those inside it; their values are plain words and numbers. */
    static Map<String, String> fields(String json) {
        Map<String, String> found = new HashMap<>();
        for (Matcher field = FIELD.matcher(json); field.find(); ) {
            found.put(field.group(1), field.group(2) == null ? field.group(3) : field.group(2));
        }
        return found;
    }

    /** The same, but small: for those who do it once to be warm. */
    Work forWarmth() {
        return new Work(
            kind, body, window, Math.min(2 * seconds, WARM_S), Math.min(count, WARM_COUNT), rate,
            Math.min(queues, WARM_QUEUES), together);
    }

    /** As many as go, for as long: for the server that is to be warm. */
    Work pipelined() {
        return new Work("put", body, window, seconds, 0, 0, queues, together);
    }

    /** Whether it reads what others have put. */
    boolean reads() {
        return kind.equals("replay") || kind.equals("java-push");
    }

    /** Messages in all, or 0 where the time says when it is over. */
    int total() {
        return rate > 0 ? (int) (rate * seconds) : count;
    }

    /** Letters, the same every time. */
    byte[] letters() {
        byte[] made = new byte[body];
        Random random = new Random(body);
        for (int at = 0; at < body; at++) {
            made[at] = (byte) ('a' + random.nextInt(26));
        }
        return made;
    }
}
