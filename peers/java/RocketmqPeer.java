package towline.peers;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.ResponseCode;

/** RocketMQ's own clients; where many are on their way, batches are sent. `address` is host:port of the name server. */
public final class RocketmqPeer implements Peer {
    private static final String GROUP = "peers";
    private static final String ANY_TOPIC = "TBW102"; // is on every broker, so its route is known before our topic's
    private static final int TIMEOUT_MS = 20_000;
    private static final int REGISTERED_S = 60; // a broker registers again every 30 s
    private static final int FIRST_TIMEOUT_MS = 1_000;
    private static final int PULLED_TOGETHER = 1024;
    private String nameServer;
    private DefaultMQProducer producer;
    private int timeoutMs;
    private String broker; // its name, where topics are

    @Override
    public void connect(String address, Work work) throws Exception {
        nameServer = address;
        timeoutMs = work.kind().equals("first") ? FIRST_TIMEOUT_MS : TIMEOUT_MS;
        producer = new DefaultMQProducer(GROUP);
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(timeoutMs);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE); // no other client compresses
        if (work.kind().equals("first")) {
            producer.setRetryTimesWhenSendFailed(0);
        }
        producer.start();
    }

    @Override
    public void makeTopic(String topic, int queues) throws Exception {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(REGISTERED_S);
        while (!created(topic, queues, System.nanoTime() > until)) {
            Thread.sleep(10);
        }
        while (producer.fetchPublishMessageQueues(topic).size() < queues) {
            Thread.sleep(1);
        }
        broker = producer.fetchPublishMessageQueues(topic).get(0).getBrokerName();
    }

    /** False while the name server does not know the broker: on a busy machine its first registration may be lost. */
    private boolean created(String topic, int queues, boolean isLate) throws MQClientException {
        try {
            producer.createTopic(ANY_TOPIC, topic, queues, null);
            return true;
        } catch (MQClientException met) {
            boolean unknown = met.getCause() instanceof MQClientException why
                && why.getResponseCode() == ResponseCode.TOPIC_NOT_EXIST;
            if (isLate || !unknown) {
                throw met;
            }
            return false;
        }
    }

    @Override
    public boolean takesBatches() {
        return true;
    }

    @Override
    public void send(String topic, int queue, byte[][] bodies, Outcome outcome) throws Exception {
        SendCallback told = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    outcome.acknowledged();
                } else {
                    outcome.failed(Peer.notAcknowledged(result));
                }
            }

            @Override
            public void onException(Throwable trouble) {
                outcome.failed(trouble);
            }
        };
        MessageQueue target = new MessageQueue(topic, broker, queue);
        if (bodies.length == 1) {
            producer.send(new Message(topic, bodies[0]), target, told, timeoutMs);
        } else {
            producer.send(messages(topic, bodies), target, told, timeoutMs);
        }
    }

    @Override
    public void put(String topic, int queue, byte[][] bodies) throws Exception {
        MessageQueue target = new MessageQueue(topic, broker, queue);
        SendResult result = bodies.length == 1
            ? producer.send(new Message(topic, bodies[0]), target, timeoutMs)
            : producer.send(messages(topic, bodies), target, timeoutMs);
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw Peer.notAcknowledged(result);
        }
    }

    private static List<Message> messages(String topic, byte[][] bodies) {
        List<Message> messages = new ArrayList<>(bodies.length);
        for (byte[] body : bodies) {
            messages.add(new Message(topic, body));
        }
        return messages;
    }

    @Override
    public Closing push(String topic, Consumer<byte[]> each) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(GROUP + System.nanoTime());
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> each.accept(message.getBody()));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer::shutdown;
    }

    @Override
    public Reader reader(String topic, int queues, boolean fromTheEnd) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(GROUP + System.nanoTime());
        consumer.setNamesrvAddr(nameServer);
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(PULLED_TOGETHER);
        consumer.setPullThresholdForQueue(16 * PULLED_TOGETHER);
        consumer.start();
        List<MessageQueue> assigned = new ArrayList<>();
        for (int queue = 0; queue < queues; queue++) {
            assigned.add(new MessageQueue(topic, broker, queue));
        }
        consumer.assign(assigned);
        for (MessageQueue queue : assigned) {
            if (fromTheEnd) {
                consumer.seekToEnd(queue);
            } else {
                consumer.seekToBegin(queue);
            }
        }
        return new Reader() {
            @Override
            public int read(long withinMs, Consumer<byte[]> each) {
                List<MessageExt> found = consumer.poll(withinMs);
                for (MessageExt message : found) {
                    each.accept(message.getBody());
                }
                return found.size();
            }

            @Override
            public void close() {
                consumer.shutdown();
            }
        };
    }

    @Override
    public void close() {
        if (producer != null) {
            producer.shutdown();
            producer = null;
        }
    }
}
