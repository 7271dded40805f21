package towline.remoting;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Real consumers of every kind: NAMESRV TOPIC. Each step prints lines in which nothing differs between two runs that
 * went the same way.
 */
public final class Consume {
    private static final int COUNT = 40;
    private static final long WAIT_S = 60;

    private final String address;
    private final String topic;
    private final DefaultMQProducer producer;

    private Consume(String address, String topic) throws Exception {
        this.address = address;
        this.topic = topic;
        producer = new DefaultMQProducer("pg");
        producer.setNamesrvAddr(address);
        producer.setInstanceName("producer");
        hurry(producer);
        producer.start();
    }

    public static void main(String[] words) {
        try {
            all(new Consume(words[0], words[1]));
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);  // consumers that were not shut down would keep the program
        }
        System.exit(0);
    }

    private static void all(Consume run) throws Exception {
        run.fill();
        run.all("push", "*", null);
        run.all("tag", "TagA", null);
        run.all("two tags", "TagA || TagB", null);
        run.all("sql", null, MessageSelector.bySql("number BETWEEN 10 AND 19"));
        run.shared();
        run.broadcasting();
        run.ordered();
        run.later();
        run.litePull();
        run.pull();
        run.lookups();
        run.replies();
        run.producer.shutdown();
        System.out.println("over");
    }

    private void fill() throws Exception {
        for (int number = 0; number < COUNT; number++) {
            Message message = new Message(topic, number % 2 == 0 ? "TagA" : "TagB", "k" + number, bytes("m" + number));
            message.putUserProperty("number", String.valueOf(number));
            producer.send(message, (queues, one, place) -> queues.get((int) place % queues.size()), number);
        }
    }

    private DefaultMQPushConsumer consumer(String group, String instance) {
        DefaultMQPushConsumer made = new DefaultMQPushConsumer(group + "-" + topic);
        made.setNamesrvAddr(address);
        made.setInstanceName(instance);
        made.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        hurry(made);
        return made;
    }

    /** Asks for routes, and says that it is there, every second instead of every 30. */
    private static void hurry(ClientConfig client) {
        client.setPollNameServerInterval(1_000);
        client.setHeartbeatBrokerInterval(1_000);
    }

    private void all(String what, String tags, MessageSelector selector) throws Exception {
        DefaultMQPushConsumer consumer = consumer(what.replace(" ", ""), "one");
        if (selector == null) {
            consumer.subscribe(topic, tags);
        } else {
            consumer.subscribe(topic, selector);
        }
        Set<String> seen = ConcurrentHashMap.newKeySet();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(each -> seen.add(text(each)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        int expected = what.equals("sql") ? 10 : what.equals("tag") ? COUNT / 2 : COUNT;
        boolean came = await(() -> seen.size() >= expected);
        Thread.sleep(300);
        System.out.println(what + " " + came + " " + new TreeSet<>(seen));
        consumer.shutdown();
    }

    private void shared() throws Exception {
        Map<String, Set<Integer>> queues = new ConcurrentHashMap<>();
        Set<String> seen = ConcurrentHashMap.newKeySet();
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (String name : new String[] {"one", "two"}) {
            DefaultMQPushConsumer member = consumer("shared", name);
            member.subscribe(topic, "*");
            member.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt each : messages) {
                    if (text(each).startsWith("shared")) {
                        queues.computeIfAbsent(name, key -> ConcurrentHashMap.newKeySet()).add(each.getQueueId());
                    }
                    seen.add(text(each));
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            member.start();
            members.add(member);
        }
        boolean first = await(() -> seen.size() >= COUNT);
        boolean divided = await(() -> members.stream().allMatch(member -> queuesOf(member) == 2));
        for (int number = 0; number < COUNT; number++) {
            Message message = new Message(topic, "TagS", bytes("shared" + number));
            producer.send(message, (all, one, place) -> all.get((int) place % all.size()), number);
        }
        boolean second = await(() -> seen.size() >= 2 * COUNT);
        System.out.println("shared " + first + " " + divided + " " + second + " " + new TreeMap<>(queues));
        members.get(0).shutdown();
        for (int number = 0; number < COUNT; number++) {
            producer.send(new Message(topic, "TagS", bytes("left" + number)));
        }
        System.out.println("left " + await(() -> seen.size() >= 3 * COUNT));
        members.get(1).shutdown();
    }

    private long queuesOf(DefaultMQPushConsumer member) {
        return member.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
            .filter(queue -> queue.getTopic().equals(topic)).count();
    }

    private void broadcasting() throws Exception {
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        List<Set<String>> seen = new ArrayList<>();
        for (String name : new String[] {"one", "two"}) {
            DefaultMQPushConsumer member = consumer("broadcasting", name);
            Set<String> its = ConcurrentHashMap.newKeySet();
            broadcast(member);
            member.subscribe(topic, "TagA");
            member.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(each -> its.add(text(each)));
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            member.start();
            members.add(member);
            seen.add(its);
        }
        System.out.println("broadcasting " + await(() -> seen.stream().allMatch(its -> its.size() >= COUNT / 2)));
        members.forEach(DefaultMQPushConsumer::shutdown);
    }

    /** The class of the model has another package in each line. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void broadcast(DefaultMQPushConsumer member) throws Exception {
        Class model = member.getMessageModel().getClass();
        DefaultMQPushConsumer.class.getMethod("setMessageModel", model).invoke(member, Enum.valueOf(model, "BROADCASTING"));
    }

    private void ordered() throws Exception {
        DefaultMQPushConsumer consumer = consumer("ordered", "one");
        consumer.subscribe(topic, "TagA || TagB");
        Map<Integer, List<String>> seen = new ConcurrentHashMap<>();
        Set<String> failed = ConcurrentHashMap.newKeySet();
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt each : messages) {
                if (text(each).equals("m7") && failed.add("m7")) {
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                seen.computeIfAbsent(each.getQueueId(), key -> Collections.synchronizedList(new ArrayList<>())).add(text(each));
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        boolean came = await(() -> seen.values().stream().mapToInt(Collection::size).sum() >= COUNT);
        System.out.println("ordered " + came + " " + new TreeMap<>(seen));
        consumer.shutdown();
    }

    private void later() throws Exception {
        DefaultMQPushConsumer consumer = consumer("later", "one");
        consumer.subscribe(topic, "TagA");
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        consumer.setMaxReconsumeTimes(2);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                if (text(each).equals("m4") || text(each).equals("m6") && each.getReconsumeTimes() == 0) {
                    seen.add(text(each) + " failed, times " + each.getReconsumeTimes() + " topic " + each.getTopic());
                    context.setDelayLevelWhenNextConsume(1);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                if (each.getReconsumeTimes() > 0) {
                    seen.add(text(each) + " done, times " + each.getReconsumeTimes() + " topic " + each.getTopic());
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.start();
        boolean came = await(() -> seen.size() >= 5);
        Thread.sleep(1500);
        System.out.println("later " + came + " " + new TreeSet<>(seen));
        consumer.shutdown();
    }

    private void litePull() throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("lite-" + topic);
        consumer.setNamesrvAddr(address);
        consumer.setInstanceName("lite");
        hurry(consumer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "TagA");
        consumer.start();
        Set<String> seen = new TreeSet<>();
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (seen.size() < COUNT / 2 && System.nanoTime() < until) {
            consumer.poll(500).forEach(each -> seen.add(text(each)));
        }
        consumer.commitSync();
        consumer.shutdown();
        System.out.println("lite " + seen);
        DefaultLitePullConsumer assigned = new DefaultLitePullConsumer("assigned-" + topic);
        assigned.setNamesrvAddr(address);
        assigned.setInstanceName("assigned");
        hurry(assigned);
        assigned.setAutoCommit(false);
        assigned.start();
        MessageQueue queue = queue(assigned.fetchMessageQueues(topic), 1);
        assigned.assign(List.of(queue));
        assigned.seek(queue, 3);
        MessageExt found = null;
        while (found == null && System.nanoTime() < until) {  // what was pulled before the seek may come first
            found = assigned.poll(500).stream().filter(each -> each.getQueueOffset() == 3).findFirst().orElse(null);
        }
        System.out.println("assigned " + (found == null ? "nothing" : text(found)));
        System.out.println("by time " + assigned.offsetForTimestamp(queue, 0L));
        assigned.shutdown();
    }

    private void pull() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("pull-" + topic);
        consumer.setNamesrvAddr(address);
        consumer.setInstanceName("pull");
        consumer.start();
        MessageQueue queue = queue(consumer.fetchSubscribeMessageQueues(topic), 0);
        long low = consumer.minOffset(queue);
        PullResult first = consumer.pull(queue, "TagA || TagB", low, 3);
        System.out.println("pulled " + low + " " + first.getPullStatus() + " " + first.getNextBeginOffset());
        first.getMsgFoundList().forEach(each -> System.out.println(text(each) + " at " + each.getQueueOffset()));
        long end = consumer.maxOffset(queue);
        System.out.println("at the end " + consumer.pull(queue, "*", end, 3).getPullStatus());
        System.out.println("behind it " + consumer.pull(queue, "*", end + 5, 3).getPullStatus());
        System.out.println("no such tag " + consumer.pull(queue, "TagZ", low, 3).getPullStatus());
        System.out.println("searched " + (consumer.searchOffset(queue, 0) == low));
        System.out.println("earliest " + (consumer.earliestMsgStoreTime(queue) > 0));
        consumer.updateConsumeOffset(queue, 2);
        consumer.getOffsetStore().persist(queue);
        System.out.println("stored " + await(() -> stored(consumer, queue) == 2));
        consumer.shutdown();
    }

    private static long stored(DefaultMQPullConsumer consumer, MessageQueue queue) {
        try {
            return consumer.fetchConsumeOffset(queue, true);
        } catch (Exception error) {
            return -1;
        }
    }

    private void lookups() throws Exception {
        Message message = new Message(topic, "TagL", "looked-up", bytes("looked up"));
        SendResult sent = producer.send(message);
        boolean found = await(() -> viewed(sent.getOffsetMsgId()).equals("looked up"));
        System.out.println("by id " + found);
        System.out.println("by unique key " + await(() -> viewed(sent.getMsgId()).equals("looked up")));
        System.out.println("by key " + await(() -> queried("looked-up").equals("[looked up]")));
        System.out.println("by no key " + queried("nobody"));
    }

    private String viewed(String id) {
        try {
            return text(producer.viewMessage(topic, id));
        } catch (Exception error) {
            return error.toString();
        }
    }

    private String queried(String key) {
        try {
            QueryResult result = producer.queryMessage(topic, key, 10, 0, System.currentTimeMillis() + 60_000);
            List<String> bodies = new ArrayList<>();
            result.getMessageList().forEach(each -> bodies.add(text(each)));
            return bodies.toString();
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
    }

    private void replies() throws Exception {
        DefaultMQProducer replier = new DefaultMQProducer("repliers");
        replier.setNamesrvAddr(address);
        replier.setInstanceName("replier");
        replier.start();
        DefaultMQPushConsumer consumer = consumer("replies", "replies");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.subscribe(topic, "TagR");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                try {
                    replier.send(MessageUtil.createReplyMessage(each, bytes("reply to " + text(each))), 3_000);
                } catch (Exception error) {
                    System.err.println(error);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Thread.sleep(1000);
        Message reply = producer.request(new Message(topic, "TagR", bytes("a question")), 30_000);
        System.out.println("reply " + new String(reply.getBody(), StandardCharsets.UTF_8));
        consumer.shutdown();
        replier.shutdown();
    }

    private static MessageQueue queue(Collection<MessageQueue> queues, int number) {
        return queues.stream().filter(each -> each.getQueueId() == number).findFirst().get();
    }

    private static boolean await(BooleanSupplier condition) throws InterruptedException {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > until) {
                return false;
            }
            Thread.sleep(20);
        }
        return true;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
