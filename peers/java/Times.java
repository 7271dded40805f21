package towline.peers;

import java.util.Arrays;
import java.util.Locale;
import java.util.StringJoiner;

/** When each message was begun and ended, in ns. One thread begins, any ends; the results are for when all has ended. */
final class Times {
    private static final double[] QUANTILES = {0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 1};
    private static final double BUCKET_NS = 1e8;
    private static final int BITS = 16;
    private static final int MASK = (1 << BITS) - 1;
    private final long[][] begun = new long[1 << BITS][];
    private final long[][] ended = new long[1 << BITS][];
    private int size;

    int size() {
        return size;
    }

    /** The number of the first of `count` messages that begin now. */
    int begin(long ns, int count) {
        int first = size;
        for (; size < first + count; size++) {
            int chunk = size >>> BITS;
            if (begun[chunk] == null) {
                begun[chunk] = new long[1 << BITS];
                ended[chunk] = new long[1 << BITS];
            }
            begun[chunk][size & MASK] = ns;
        }
        return first;
    }

    void end(int first, int count, long ns) {
        for (int number = first; number < first + count; number++) {
            ended[number >>> BITS][number & MASK] = ns;
        }
    }

    /** An Answer of plan.py, in JSON; the clock of the work was started at `start`. */
    String answer(long start) {
        double[] us = new double[size];
        int[] byTime = new int[1];
        long last = start;
        for (int number = 0; number < size; number++) {
            long end = ended[number >>> BITS][number & MASK];
            us[number] = (end - begun[number >>> BITS][number & MASK]) / 1e3;
            last = Math.max(last, end);
            int bucket = (int) ((end - start) / BUCKET_NS);
            if (bucket >= byTime.length) {
                byTime = Arrays.copyOf(byTime, bucket + 1);
            }
            byTime[bucket]++;
        }
        Arrays.sort(us);
        StringJoiner quantiles = new StringJoiner(", ", "[", "]");
        for (double share : size == 0 ? new double[0] : QUANTILES) {
            quantiles.add(String.format(Locale.ROOT, "%.3f", at(us, share * (size - 1))));
        }
        return answer(size, last - start, quantiles.toString(), Arrays.toString(byTime));
    }

    static String answer(int count, long ns, String quantiles, String byTime) {
        return String.format(
            Locale.ROOT, "{\"count\": %d, \"seconds\": %.9f, \"quantiles_us\": %s, \"by_time\": %s}",
            count, ns / 1e9, quantiles, byTime);
    }

    /** Between two of the sorted values where the place is between them. */
    private static double at(double[] sorted, double place) {
        int below = (int) place;
        double low = sorted[below];
        return below + 1 < sorted.length ? low + (place - below) * (sorted[below + 1] - low) : low;
    }
}
