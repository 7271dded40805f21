package towline.remoting;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A real producer and a real push consumer while masters come and go: NAMESRV TOPIC. One message after the other is sent
 * until it is acknowledged. Every 100th line of "acknowledged" is printed. A line on the standard input ends the sending;
 * then it waits until all that was acknowledged was consumed, and prints counts.
 */
public final class Failover {
    private static final int EVERY = 100;
    private static final int POLL_MS = 1_000;
    private static final int SEND_MS = 3_000;
    private static final long LAST_S = 120;

    private Failover() {
    }

    public static void main(String[] words) {
        int status = 1;
        try {
            status = run(words[0], words[1]) ? 0 : 1;
        } catch (Exception error) {
            error.printStackTrace();
        }
        System.exit(status);
    }

    private static boolean run(String names, String topic) throws Exception {
        Map<String, AtomicInteger> consumed = new ConcurrentHashMap<>();
        Set<String> acknowledged = ConcurrentHashMap.newKeySet();
        DefaultMQProducer producer = producer(names);
        DefaultMQPushConsumer consumer = consumer(names, topic, consumed);
        try {
            AtomicInteger again = new AtomicInteger();
            send(producer, topic, acknowledged, again);
            long until = System.nanoTime() + LAST_S * 1_000_000_000L;
            while (!consumed.keySet().containsAll(acknowledged) && System.nanoTime() < until) {
                Thread.sleep(20);
            }
            int doubles = consumed.values().stream().mapToInt(each -> each.get() - 1).sum();
            long lost = acknowledged.stream().filter(each -> !consumed.containsKey(each)).count();
            System.out.println("sent again " + again + ", doubles " + doubles);
            System.out.println("acknowledged " + acknowledged.size() + ", lost " + lost);
            return lost == 0;
        } finally {
            producer.shutdown();
            consumer.shutdown();
        }
    }

    private static DefaultMQProducer producer(String names) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("failover-producers");
        producer.setNamesrvAddr(names);
        producer.setPollNameServerInterval(POLL_MS);
        producer.setHeartbeatBrokerInterval(POLL_MS);
        producer.setSendMsgTimeout(SEND_MS);
        producer.start();
        return producer;
    }

    private static DefaultMQPushConsumer consumer(String names, String topic, Map<String, AtomicInteger> consumed)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("failover-consumers");
        consumer.setNamesrvAddr(names);
        consumer.setPollNameServerInterval(POLL_MS);
        consumer.setHeartbeatBrokerInterval(POLL_MS);
        consumer.setPersistConsumerOffsetInterval(POLL_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                String body = new String(each.getBody(), StandardCharsets.UTF_8);
                consumed.computeIfAbsent(body, any -> new AtomicInteger()).incrementAndGet();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static void send(DefaultMQProducer producer, String topic, Set<String> acknowledged, AtomicInteger again)
        throws Exception {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (int number = 0; !orders.ready();) {
            String body = "message " + number;
            try {
                Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
                if (producer.send(message).getSendStatus() != SendStatus.SEND_OK) {
                    again.incrementAndGet();
                    continue;
                }
            } catch (Exception away) {
                again.incrementAndGet();
                Thread.sleep(20);
                continue;
            }
            acknowledged.add(body);
            number++;
            if (number % EVERY == 0) {
                System.out.println("acknowledged " + number);
            }
        }
    }
}
