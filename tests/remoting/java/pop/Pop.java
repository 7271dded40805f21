package towline.remoting;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Push consumers that pop, their queues being divided by the broker: NAMESRV TOPIC STEP... Each step prints lines in
 * which nothing differs between two runs that went the same way.
 */
public final class Pop {
    private static final int COUNT = 40;
    private static final long WAIT_S = 90;
    private static final long INVISIBLE_MS = 10_000;

    private final String address;
    private final String topic;
    private final DefaultMQProducer producer;
    private final DefaultMQAdminExt admin;

    private Pop(String address, String topic) throws Exception {
        this.address = address;
        this.topic = topic;
        producer = new DefaultMQProducer("pop-producer");
        producer.setNamesrvAddr(address);
        producer.setInstanceName("producer");
        producer.setSendMsgTimeout(20_000);
        producer.setMqClientApiTimeout(20_000);
        producer.start();
        admin = new DefaultMQAdminExt(20_000);
        admin.setNamesrvAddr(address);
        admin.setInstanceName("admin");
        admin.start();
    }

    public static void main(String[] words) {
        try {
            Pop run = new Pop(words[0], words[1]);
            run.fill("m");
            for (int place = 2; place < words.length; place++) {
                run.step(words[place]);
            }
            System.out.println("over");
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);  // consumers that were not shut down would keep the program
        }
        System.exit(0);
    }

    private void step(String name) throws Exception {
        switch (name) {
            case "all" -> read(name, "*", COUNT);
            case "tagged" -> read(name, "TagA", COUNT / 2);
            case "shared" -> shared();
            case "failing" -> failing();
            case "forgotten" -> forgotten();
            default -> throw new IllegalArgumentException(name);
        }
    }

    private void fill(String prefix) throws Exception {
        for (int number = 0; number < COUNT; number++) {
            Message message = new Message(topic, number % 2 == 0 ? "TagA" : "TagB", "k" + number, bytes(prefix + number));
            producer.send(message, (queues, one, place) -> queues.get((int) place % queues.size()), number);
        }
    }

    private DefaultMQPushConsumer consumer(String group, String instance, int share) throws Exception {
        String broker = admin.examineTopicRouteInfo(topic).getBrokerDatas().get(0).selectBrokerAddr();
        admin.setMessageRequestMode(broker, topic, group, MessageRequestMode.POP, share, 20_000);
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(group);
        made.setNamesrvAddr(address);
        made.setInstanceName(instance);
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        made.setClientRebalance(false);
        made.setPopInvisibleTime(INVISIBLE_MS);
        made.setMqClientApiTimeout(20_000);
        made.setPollNameServerInterval(1_000);
        made.setHeartbeatBrokerInterval(1_000);
        return made;
    }

    private void read(String what, String tags, int expected) throws Exception {
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = consumer(what + "-" + topic, "one", 0);
        consumer.subscribe(topic, tags);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(each -> seen.add(text(each) + " " + each.getReconsumeTimes()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean came = await(() -> seen.size() >= expected);
        Thread.sleep(INVISIBLE_MS + 2_000);  // what is not acknowledged would come again
        System.out.println(what + " " + came + " " + seen.size() + " " + new TreeSet<>(seen));
        System.out.println(what + " behind " + behind(what + "-" + topic));
        consumer.shutdown();
    }

    /** How far the offsets of a group are from the ends of the queues. */
    private long behind(String group) throws Exception {
        await(() -> {
            try {
                return admin.examineConsumeStats(group, topic).computeTotalDiff() == 0;
            } catch (Exception error) {
                return false;
            }
        });
        return admin.examineConsumeStats(group, topic).computeTotalDiff();
    }

    private void shared() throws Exception {
        Map<String, Integer> seen = new ConcurrentHashMap<>();
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (String name : new String[] {"one", "two", "three"}) {
            DefaultMQPushConsumer member = consumer("shared-" + topic, name, 1);
            member.subscribe(topic, "*");
            member.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(each -> seen.merge(text(each), 1, Integer::sum));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            member.start();
            members.add(member);
        }
        boolean first = await(() -> seen.size() >= COUNT);
        fill("shared");
        boolean second = await(() -> seen.size() >= 2 * COUNT);
        System.out.println("shared " + first + " " + second + " " + seen.size());
        members.forEach(DefaultMQPushConsumer::shutdown);
    }

    /** Messages of which the listener says that it could not handle them. */
    private void failing() throws Exception {
        Map<String, List<Integer>> times = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = consumer("failing-" + topic, "one", 0);
        consumer.subscribe(topic, "TagF");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            times.computeIfAbsent(text(message), key -> new ArrayList<>()).add(message.getReconsumeTimes());
            context.setDelayLevelWhenNextConsume(1);
            return message.getReconsumeTimes() < 2
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        for (int number = 0; number < 3; number++) {
            producer.send(new Message(topic, "TagF", bytes("failing" + number)));
        }
        boolean came = await(() -> times.size() == 3 && times.values().stream().allMatch(each -> each.size() >= 3));
        Thread.sleep(3_000);
        System.out.println("failing " + came + " " + new TreeMap<>(times));
        consumer.shutdown();
    }

    /** A message whose listener ends long after it was visible again. */
    private void forgotten() throws Exception {
        Map<Integer, String> times = new ConcurrentHashMap<>();
        DefaultMQPushConsumer consumer = consumer("forgotten-" + topic, "one", 0);
        consumer.subscribe(topic, "TagG");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            times.put(message.getReconsumeTimes(), text(message) + " " + message.getTopic().equals(topic));
            if (message.getReconsumeTimes() == 0) {
                sleep(INVISIBLE_MS + 5_000);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        SendResult sent = producer.send(new Message(topic, "TagG", bytes("forgotten")));
        boolean came = await(() -> times.containsKey(1));
        Thread.sleep(INVISIBLE_MS + 2_000);
        System.out.println("forgotten " + sent.getSendStatus() + " " + came + " " + new TreeMap<>(times));
        consumer.shutdown();
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private static boolean await(BooleanSupplier condition) throws InterruptedException {
        long until = System.nanoTime() + WAIT_S * 1_000_000_000L;
        while (!condition.getAsBoolean() && System.nanoTime() < until) {
            Thread.sleep(20);
        }
        return condition.getAsBoolean();
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
