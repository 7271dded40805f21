package towline.remoting;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.consumer.store.RemoteBrokerOffsetStore;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A real push consumer, with connections and an id of its own, which says what it does: "joined NAME", "left NAME";
 * "began NAME QUEUE OFFSET" where the broker told it an offset to begin at, "ended NAME QUEUE" where it gave the queue up;
 * "consumed NAME QUEUE OFFSET BODY".
 */
final class FailoverMember {
    private static final String GROUP = "failover-consumers";
    private static int count = 0;

    private final String name;
    private final String topic;
    private final DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(GROUP);

    private FailoverMember(String names, String topic, String name) throws Exception {
        this.name = name;
        this.topic = topic;
        consumer.setInstanceName(name + "-" + count++);
        consumer.setNamesrvAddr(names);
        consumer.setPollNameServerInterval(Failover.POLL_MS);
        consumer.setHeartbeatBrokerInterval(Failover.POLL_MS);
        consumer.setPersistConsumerOffsetInterval(Failover.POLL_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                String body = new String(each.getBody(), StandardCharsets.UTF_8);
                Failover.say("consumed", name, each.getQueueId(), each.getQueueOffset(), body);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.setOffsetStore(new Offsets(MQClientManager.getInstance().getOrCreateMQClientInstance(consumer)));
    }

    /** Tries until it has started: that fails where the node that is asked for the route was killed. */
    static FailoverMember join(String names, String topic, String name) throws Exception {
        while (true) {
            FailoverMember member = new FailoverMember(names, topic, name);
            Failover.say("joined", name);
            try {
                member.consumer.start();
                return member;
            } catch (IllegalStateException | MQClientException away) {
                member.leave();
                Failover.pause();
            }
        }
    }

    void leave() {
        consumer.shutdown();
        Failover.say("left", name);
    }

    /** The client's own, overheard. */
    private final class Offsets extends RemoteBrokerOffsetStore {
        Offsets(MQClientInstance client) {
            super(client, GROUP);
        }

        @Override
        public long readOffset(MessageQueue queue, ReadOffsetType type) {
            long offset = super.readOffset(queue, type);
            // Below -1 it is not known, and the client asks again. At -1 there is none: it begins at the first message.
            if (type == ReadOffsetType.READ_FROM_STORE && queue.getTopic().equals(topic) && offset >= -1) {
                Failover.say("began", name, queue.getQueueId(), Math.max(offset, 0));
            }
            return offset;
        }

        @Override
        public void removeOffset(MessageQueue queue) {
            super.removeOffset(queue);
            if (queue.getTopic().equals(topic)) {
                Failover.say("ended", name, queue.getQueueId());
            }
        }
    }
}
