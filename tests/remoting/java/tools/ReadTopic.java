package towline.remoting;

import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A real consumer that reads a topic from the beginning of each queue: NAMESRV TOPIC COUNT. Ends when it has read COUNT
 * messages of different bodies, or when nothing came for long. Prints how many it read, and how many of them were of a body
 * that it had read before.
 */
public final class ReadTopic {
    private static final int POLL_MS = 1_000;
    private static final int BATCH = 1_024;
    private static final int AHEAD = 20_000;
    private static final int EMPTY_MAX = 60;

    private ReadTopic() {
    }

    public static void main(String[] words) {
        int status = 1;
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("reads-" + words[1]);
        try {
            consumer.setNamesrvAddr(words[0]);
            consumer.setPullBatchSize(BATCH);
            consumer.setPullThresholdForAll(AHEAD);
            consumer.setAutoCommit(false);
            consumer.start();
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(words[1]);
            consumer.assign(queues);
            for (MessageQueue queue : queues) {
                consumer.seekToBegin(queue);
            }
            status = read(consumer, Integer.parseInt(words[2])) ? 0 : 1;
        } catch (Exception error) {
            error.printStackTrace();
        }
        System.exit(status);
    }

    private static boolean read(DefaultLitePullConsumer consumer, int wanted) {
        Set<String> bodies = new HashSet<>();
        int doubles = 0;
        int empty = 0;
        while (bodies.size() < wanted && empty < EMPTY_MAX) {
            List<MessageExt> found = consumer.poll(POLL_MS);
            empty = found.isEmpty() ? empty + 1 : 0;
            for (MessageExt each : found) {
                doubles += bodies.add(new String(each.getBody(), StandardCharsets.UTF_8)) ? 0 : 1;
            }
        }
        System.out.println("read " + bodies.size() + ", doubles " + doubles);
        return bodies.size() == wanted;
    }
}
