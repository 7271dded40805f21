package towline.remoting;

import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A real producer: NAMESRV TOPIC. It sends by every way there is, and prints a line for each, in which nothing differs
 * between two runs that went the same way: no times, no addresses, no keys.
 */
public final class Produce {
    private static final int MANY = 200;
    private static final long WAIT_S = 60;

    private Produce() {
    }

    public static void main(String[] words) {
        try {
            all(words);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);  // producers that were not shut down would keep the program
        }
        System.exit(0);
    }

    private static void all(String[] words) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("pg");
        producer.setNamesrvAddr(words[0]);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        try {
            plain(producer, words[1]);
            refused(producer, words[1]);
            later(producer, words[1]);
        } finally {
            producer.shutdown();
        }
        transactions(words[0], words[1]);
        System.out.println("over");
    }

    private static void plain(DefaultMQProducer producer, String topic) throws Exception {
        say("first", producer.send(message(topic, "first", "TagA")));
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
        System.out.println("queues " + queues.size());
        MessageQueue queue = queues.stream().filter(each -> each.getQueueId() == 2).findFirst().get();
        long before = at(say("placed", producer.send(message(topic, "placed", "TagB"), queue)));
        for (int number = 0; number < 3; number++) {
            long now = at(say("placed again", producer.send(message(topic, "again" + number, "TagB"), queue)));
            System.out.println("behind " + (now - before));
        }
        say("chosen", producer.send(message(topic, "chosen", "TagB"), (all, one, place) -> all.get((int) place), 1));
        List<Message> batch = new ArrayList<>();
        for (int number = 0; number < 32; number++) {
            batch.add(message(topic, "batch" + number, "TagC"));
        }
        SendResult stored = say("batch", producer.send(batch, queue));
        System.out.println("ids " + stored.getOffsetMsgId().split(",").length + " behind " + (at(stored) - before));
        producer.sendOneway(message(topic, "oneway", "TagD"), queue);
        Message withMore = message(topic, "more", "TagE");
        withMore.setKeys("k1 k2");
        withMore.setFlag(-7);
        withMore.putUserProperty("mine", "a value with \u00fcmlauts");
        say("more", producer.send(withMore, queue));
        say("compressed", producer.send(new Message(topic, "TagF", "k", new byte[10_000]), queue));
        say("without a tag", producer.send(new Message(topic, "bare".getBytes(StandardCharsets.UTF_8)), queue));
        async(producer, topic);
    }

    private static void async(DefaultMQProducer producer, String topic) throws Exception {
        CountDownLatch left = new CountDownLatch(MANY);
        AtomicInteger failed = new AtomicInteger();
        for (int number = 0; number < MANY; number++) {
            producer.send(message(topic, "async" + number, "TagG"), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    left.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    System.err.println(error);
                    failed.incrementAndGet();
                    left.countDown();
                }
            });
        }
        System.out.println("async " + left.await(WAIT_S, TimeUnit.SECONDS) + " failed " + failed);
    }

    private static void refused(DefaultMQProducer producer, String topic) throws Exception {
        producer.setRetryTimesWhenSendFailed(0);
        MessageQueue known = producer.fetchPublishMessageQueues(topic).get(0);
        MessageQueue nowhere = new MessageQueue(topic, known.getBrokerName(), 999);
        failing("no such queue", () -> producer.send(message(topic, "nowhere", "TagA"), nowhere));
        failing("too long", () -> producer.send(large(topic, known), known));
        failing("an illegal topic", () -> producer.send(message("no/topic", "x", "TagA")));
        failing("too far away", () -> producer.send(timed(message(topic, "far", "TagA"), "TIMER_DELAY_SEC", "99999999"), known));
    }

    private static Message large(String topic, MessageQueue queue) {
        Message large = message(topic, "large", "TagA");
        large.putUserProperty("long", "x".repeat(32_700));
        return large;
    }

    private static void later(DefaultMQProducer producer, String topic) throws Exception {
        MessageQueue queue = producer.fetchPublishMessageQueues(topic).get(0);
        Message delayed = message(topic, "delayed", "TagH");
        delayed.setDelayTimeLevel(1);
        say("delayed", producer.send(delayed, queue));
        say("timed", producer.send(timed(message(topic, "timed", "TagH"), "TIMER_DELAY_SEC", "1"), queue));
        SendResult recalled = producer.send(timed(message(topic, "recalled", "TagH"), "TIMER_DELAY_SEC", "30"), queue);
        say("to be recalled", recalled);
        try {
            Method handle = SendResult.class.getMethod("getRecallHandle");
            Method recall = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class);
            Object id = recall.invoke(producer, topic, handle.invoke(recalled));
            System.out.println("recalled " + recalled.getMsgId().equals(id));
        } catch (NoSuchMethodException old) {
            System.out.println("no recall in this client");
        }
    }

    private static void transactions(String address, String topic) throws Exception {
        ConcurrentHashMap<String, LocalTransactionState> states = new ConcurrentHashMap<>();
        CountDownLatch checked = new CountDownLatch(1);
        TransactionMQProducer producer = new TransactionMQProducer("billing-" + topic);
        producer.setNamesrvAddr(address);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                if (!body.equals(LocalTransactionState.UNKNOW.name())) {
                    return LocalTransactionState.valueOf(body);  // a real broker asks before it has read what ended
                }
                if (checked.getCount() > 0) {
                    System.out.println("checked " + body + " " + message.getTopic() + " " + message.getTags());
                }
                checked.countDown();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        try {
            for (LocalTransactionState state : LocalTransactionState.values()) {
                Message message = message(topic, state.name(), "TagT");
                say(state.name(), producer.sendMessageInTransaction(message, state));
            }
            System.out.println("asked " + checked.await(WAIT_S, TimeUnit.SECONDS));
        } finally {
            Thread.sleep(500);  // the end of a checked transaction goes one way
            producer.shutdown();
        }
    }

    private interface Attempt {
        SendResult send() throws Exception;
    }

    private static void failing(String what, Attempt attempt) throws Exception {
        try {
            System.out.println(what + ": " + attempt.send().getSendStatus());
        } catch (MQBrokerException error) {
            System.out.println(what + ": broker " + error.getResponseCode());
        } catch (MQClientException error) {
            System.out.println(what + ": client " + error.getResponseCode());
        }
    }

    private static SendResult say(String what, SendResult result) {
        System.out.println(what + ": " + result.getSendStatus() + " key " + result.getMsgId().split(",")[0].length()
            + " id " + (result.getOffsetMsgId() == null ? 0 : result.getOffsetMsgId().split(",")[0].length())
            + " region " + result.getRegionId() + " traced " + result.isTraceOn());
        return result;
    }

    private static long at(SendResult result) {
        return result.getQueueOffset();
    }

    private static Message timed(Message message, String name, String value) {
        MessageAccessor.putProperty(message, name, value);
        return message;
    }

    private static Message message(String topic, String body, String tag) {
        return new Message(topic, tag, body, body.getBytes(StandardCharsets.UTF_8));
    }
}
