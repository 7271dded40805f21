package towline.remoting;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A real consumer of 4.9 or 5 that reads a topic from its beginning: NAMESRV TOPIC KIND COUNT. KIND is push or lite. Ends
 * when it has read COUNT messages. Every 50th is printed, and at the end how many were read more than once. It reads few
 * messages ahead and takes its time, so that most of them are still to be read when the first ones were.
 */
public final class ReadAll {
    private static final int EVERY = 50;
    private static final int POLL_MS = 1_000;
    private static final int AHEAD = 32;
    private static final int PAUSE_MS = 2;
    private static final long LAST_S = 90;

    private static final Map<String, AtomicInteger> READ = new ConcurrentHashMap<>();
    private static final AtomicInteger COUNTED = new AtomicInteger();

    private ReadAll() {
    }

    public static void main(String[] words) {
        int status = 1;
        try {
            int wanted = Integer.parseInt(words[3]);
            status = (words[2].equals("push") ? push(words[0], words[1], wanted) : lite(words[0], words[1], wanted)) ? 0 : 1;
            int doubles = READ.values().stream().mapToInt(each -> each.get() - 1).sum();
            System.out.println("ended with " + READ.size() + ", doubles " + doubles);
        } catch (Exception error) {
            error.printStackTrace();
        }
        System.exit(status);
    }

    private static boolean push(String names, String topic, int wanted) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("readers-" + topic);
        consumer.setNamesrvAddr(names);
        consumer.setPollNameServerInterval(POLL_MS);
        consumer.setHeartbeatBrokerInterval(POLL_MS);
        consumer.setPersistConsumerOffsetInterval(POLL_MS);
        consumer.setPullThresholdForQueue(AHEAD);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            note(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            return await(wanted);
        } finally {
            consumer.shutdown();
        }
    }

    private static boolean lite(String names, String topic, int wanted) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("lite-" + topic);
        consumer.setNamesrvAddr(names);
        consumer.setPollNameServerInterval(POLL_MS);
        consumer.setHeartbeatBrokerInterval(POLL_MS);
        consumer.setPullThresholdForQueue(AHEAD);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.start();
        try {
            long until = System.nanoTime() + LAST_S * 1_000_000_000L;
            while (READ.size() < wanted && System.nanoTime() < until) {
                note(consumer.poll(POLL_MS));
            }
            return READ.size() == wanted;
        } finally {
            consumer.shutdown();
        }
    }

    private static boolean await(int wanted) throws InterruptedException {
        long until = System.nanoTime() + LAST_S * 1_000_000_000L;
        while (READ.size() < wanted && System.nanoTime() < until) {
            Thread.sleep(20);
        }
        return READ.size() == wanted;
    }

    private static void note(List<MessageExt> messages) {
        for (MessageExt each : messages) {
            String body = new String(each.getBody(), StandardCharsets.UTF_8);
            READ.computeIfAbsent(body, any -> new AtomicInteger()).incrementAndGet();
            int count = COUNTED.incrementAndGet();
            if (count % EVERY == 0) {
                System.out.println("read " + count);
            }
            try {
                Thread.sleep(PAUSE_MS);
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
