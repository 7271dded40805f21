package towline.remoting;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Clients of the gRPC protocol, at a proxy: ENDPOINTS TOPIC. There are the topics TOPIC, TOPIC-fifo, TOPIC-delay,
 * TOPIC-trans, and the groups GROUP and GROUP-fifo, which is for messages in order. Each step prints lines in which
 * nothing differs between two runs that went the same way.
 */
public final class Grpc {
    private static final int COUNT = 20;
    private static final long WAIT_S = 120;
    private static final Duration INVISIBLE = Duration.ofSeconds(30);

    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final ClientConfiguration configuration;
    private final String topic;

    private Grpc(String endpoints, String topic) {
        configuration = ClientConfiguration.newBuilder()
            .setEndpoints(endpoints)
            .enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(20))
            .build();
        this.topic = topic;
    }

    public static void main(String[] words) {
        try {
            Grpc run = new Grpc(words[0], words[1]);
            run.plain();
            run.simple();
            run.push();
            run.fifo();
            run.delayed();
            run.transactions();
            System.out.println("over");
        } catch (Throwable error) {
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    private MessageBuilder message(String of, String body) {
        return provider.newMessageBuilder().setTopic(of).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private Producer producer(String... topics) throws Exception {
        return provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(topics).build();
    }

    private SimpleConsumer consumer(String group, String of, FilterExpression filter) throws Exception {
        return provider.newSimpleConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Collections.singletonMap(of, filter))
            .build();
    }

    private void plain() throws Exception {
        try (Producer producer = producer(topic)) {
            int sent = 0;
            for (int number = 0; number < COUNT; number++) {
                Message message = message(topic, "m" + number)
                    .setTag(number % 2 == 0 ? "TagA" : "TagB")
                    .setKeys("k" + number)
                    .addProperty("number", String.valueOf(number))
                    .build();
                sent += producer.send(message).getMessageId() == null ? 0 : 1;
            }
            System.out.println("plain " + sent);
        }
    }

    /** Half of the messages are acknowledged, one is kept for longer, the others come again. */
    private void simple() throws Exception {
        try (SimpleConsumer consumer = consumer("GROUP", topic, FilterExpression.SUB_ALL)) {
            Map<String, Integer> first = new TreeMap<>();
            Map<String, Integer> again = new TreeMap<>();
            long kept = 0;
            long back = 0;
            long until = System.nanoTime() + WAIT_S * 1_000_000_000L;
            while (System.nanoTime() < until && (first.size() < COUNT || again.size() < COUNT / 2)) {
                for (MessageView message : consumer.receive(4, INVISIBLE)) {
                    String body = text(message);
                    if (message.getDeliveryAttempt() > 1) {
                        again.put(body, message.getDeliveryAttempt());
                        if (body.equals("m1")) {
                            back = System.nanoTime();
                        }
                        consumer.ack(message);
                    } else {
                        first.put(body, message.getDeliveryAttempt());
                        int number = Integer.parseInt(body.substring(1));
                        if (number % 2 == 0) {
                            consumer.ack(message);
                        } else if (number == 1) {
                            kept = System.nanoTime();
                            consumer.changeInvisibleDuration(message, Duration.ofSeconds(45));
                        }
                    }
                }
            }
            System.out.println("simple " + first);
            System.out.println("simple again " + again);
            System.out.println("simple kept for longer " + (back - kept > 44_000_000_000L));
            System.out.println("simple left " + consumer.receive(4, INVISIBLE).size());
        }
    }

    /** Messages of one tag; the first of them is handled at the second attempt. */
    private void push() throws Exception {
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        FilterExpression filter = new FilterExpression("TagA", FilterExpressionType.TAG);
        PushConsumer consumer = provider.newPushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup("GROUP-push")
            .setSubscriptionExpressions(Collections.singletonMap(topic, filter))
            .setMessageListener(message -> {
                seen.add(text(message) + " " + message.getDeliveryAttempt());
                boolean fails = text(message).equals("m0") && message.getDeliveryAttempt() == 1;
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            })
            .build();
        await(() -> seen.size() > COUNT / 2);
        Thread.sleep(1_000);
        System.out.println("push " + new TreeSet<>(seen) + " " + seen.size());
        consumer.close();
    }

    private void fifo() throws Exception {
        String of = topic + "-fifo";
        try (Producer producer = producer(of)) {
            for (int number = 0; number < COUNT; number++) {
                producer.send(message(of, "f" + number).setMessageGroup("group" + number % 2).build());
            }
        }
        Map<String, List<String>> seen = new ConcurrentHashMap<>();
        PushConsumer consumer = provider.newPushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup("GROUP-fifo")
            .setSubscriptionExpressions(Collections.singletonMap(of, FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                List<String> of1 = seen.computeIfAbsent(message.getMessageGroup().orElse(""), key ->
                    Collections.synchronizedList(new ArrayList<>()));
                of1.add(text(message));
                boolean fails = text(message).equals("f4") && message.getDeliveryAttempt() == 1;
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            })
            .build();
        await(() -> seen.values().stream().mapToInt(List::size).sum() > COUNT);
        Thread.sleep(1_000);
        System.out.println("fifo " + new TreeMap<>(seen));
        consumer.close();
    }

    private void delayed() throws Exception {
        String of = topic + "-delay";
        long at = System.currentTimeMillis() + 3_000;
        try (Producer producer = producer(of)) {
            producer.send(message(of, "delayed").setDeliveryTimestamp(at).build());
        }
        System.out.println("delayed " + read(of, 1) + " " + (System.currentTimeMillis() >= at));
    }

    private void transactions() throws Exception {
        String of = topic + "-trans";
        try (Producer producer = provider.newProducerBuilder()
            .setClientConfiguration(configuration)
            .setTopics(of)
            .setTransactionChecker(message -> TransactionResolution.COMMIT)
            .build()) {
            for (String end : new String[] {"commit", "rollback", "checked"}) {
                Transaction transaction = producer.beginTransaction();
                producer.send(message(of, end).build(), transaction);
                if (end.equals("commit")) {
                    transaction.commit();
                } else if (end.equals("rollback")) {
                    transaction.rollback();
                }
            }
            System.out.println("transactions " + read(of, 2));
        }
    }

    /** So many messages of a topic, and what came beside them. */
    private TreeSet<String> read(String of, int count) throws Exception {
        TreeSet<String> found = new TreeSet<>();
        try (SimpleConsumer consumer = consumer("GROUP-" + of, of, FilterExpression.SUB_ALL)) {
            long until = System.nanoTime() + WAIT_S * 1_000_000_000L;
            while (found.size() < count && System.nanoTime() < until) {
                for (MessageView message : consumer.receive(4, INVISIBLE)) {
                    found.add(text(message));
                    consumer.ack(message);
                }
            }
        }
        return found;
    }

    private static boolean await(BooleanSupplier condition) throws InterruptedException {
        long until = System.nanoTime() + WAIT_S * 1_000_000_000L;
        while (!condition.getAsBoolean() && System.nanoTime() < until) {
            Thread.sleep(20);
        }
        return condition.getAsBoolean();
    }

    private static String text(MessageView message) {
        ByteBuffer body = message.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
