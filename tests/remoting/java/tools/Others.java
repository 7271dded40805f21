package towline.remoting;

import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.body.QueueTimeSpan;
import org.apache.rocketmq.remoting.protocol.header.UpdateConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What RocketMQ's classes for tools ask that no command of mqadmin does: NAMESRV BROKER, the second as host:port. */
public class Others {
    static final long CALL_MS = 20_000;
    static final int MESSAGES = 3;
    static final String TOPIC = "other-topic";
    static final String SECOND = "other-topic-2";
    static final String GROUP = "other-group";
    static final String CLONE = "other-clone";

    public static void main(String[] args) throws Exception {
        String names = args[0];
        String broker = args[1];
        DefaultMQAdminExt admin = new DefaultMQAdminExt(CALL_MS);
        admin.setNamesrvAddr(names);
        admin.start();
        MQClientAPIImpl api = admin.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl();
        makeThings(admin, broker);
        DefaultMQProducer producer = new DefaultMQProducer("other-producer");
        producer.setNamesrvAddr(names);
        producer.setSendMsgTimeout((int) CALL_MS);
        producer.start();
        MessageQueue queue = await(() -> producer.fetchPublishMessageQueues(TOPIC)).stream()
            .filter(each -> each.getQueueId() == 0).findFirst().get();
        for (int number = 0; number < MESSAGES; number++) {
            producer.send(new Message(TOPIC, ("body " + number).getBytes()), queue);
        }
        producer.shutdown();
        commit(api, broker, GROUP, 2);
        System.out.println("of the cluster " + admin.fetchTopicsByCLuster("DefaultCluster").getTopicList().containsAll(
            Arrays.asList(TOPIC, SECOND)));
        System.out.println("of another " + admin.fetchTopicsByCLuster("another").getTopicList());
        System.out.println("of the system " + api.getSystemTopicList(CALL_MS).getTopicList().containsAll(
            Arrays.asList("DefaultCluster", queue.getBrokerName(), "TBW102", "SCHEDULE_TOPIC_XXXX")));
        tellSpans(admin);
        admin.cloneGroupOffset(GROUP, CLONE, TOPIC, true);
        tellCorrections("corrections", api, broker, CLONE);
        commit(api, broker, CLONE, 1);
        tellCorrections("corrections", api, broker, GROUP);
        tellCorrections("corrections without", api, broker, GROUP, CLONE);
        System.out.println("topics " + new TreeSet<>(admin.queryTopicsByConsumer(GROUP).getTopicList()));
        tellSubscription(admin, names);
        try {
            System.out.println("values " + admin.getKVListByNamespace("nothing"));
        } catch (MQClientException error) {
            System.out.println("values " + error.getResponseCode() + " " + error.getErrorMessage());
        }
        System.out.println("slaves " + admin.getBrokerHAStatus(broker).getHaConnectionInfo());
        admin.shutdown();
        System.exit(0);
    }

    private static void makeThings(DefaultMQAdminExt admin, String broker) throws Exception {
        admin.createAndUpdateTopicConfigList(broker, Arrays.asList(new TopicConfig(TOPIC, 2, 2, 6),
            new TopicConfig(SECOND, 1, 1, 6), new TopicConfig("%RETRY%" + GROUP, 1, 1, 6)));
        for (String topic : Arrays.asList(TOPIC, SECOND)) {
            TopicConfig made = admin.examineTopicConfig(broker, topic);
            System.out.println("topic " + topic + " " + made.getReadQueueNums() + " " + made.getPerm());
        }
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName(GROUP);
        group.setRetryMaxTimes(7);
        SubscriptionGroupConfig clone = new SubscriptionGroupConfig();
        clone.setGroupName(CLONE);
        admin.createAndUpdateSubscriptionGroupConfigList(broker, Arrays.asList(group, clone));
        System.out.println("group " + admin.examineSubscriptionGroupConfig(broker, GROUP).getRetryMaxTimes());
    }

    private static void tellSpans(DefaultMQAdminExt admin) throws Exception {
        List<QueueTimeSpan> spans = await(() -> {
            List<QueueTimeSpan> found = admin.queryConsumeTimeSpan(TOPIC, GROUP);
            return found.stream().anyMatch(each -> each.getMaxTimeStamp() > 0 && each.getDelayTime() > 0) ? found : null;
        });
        spans.sort((one, other) -> one.getMessageQueue().compareTo(other.getMessageQueue()));
        for (QueueTimeSpan span : spans) {
            boolean ordered = span.getMinTimeStamp() <= span.getConsumeTimeStamp()
                && span.getConsumeTimeStamp() <= span.getMaxTimeStamp();
            System.out.println("span " + span.getMessageQueue() + " " + (span.getMinTimeStamp() > 0) + " " + ordered);
        }
    }

    private static void tellCorrections(String what, MQClientAPIImpl api, String broker, String group, String... without)
        throws Exception {
        System.out.println(what + " " + new TreeMap<>(api.queryCorrectionOffset(broker, TOPIC, group,
            without.length == 0 ? Collections.emptySet() : new TreeSet<>(Arrays.asList(without)), CALL_MS)));
    }

    private static void tellSubscription(DefaultMQAdminExt admin, String names) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(GROUP);
        consumer.setNamesrvAddr(names);
        consumer.subscribe(SECOND, "TagA || TagB");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
            ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.start();
        SubscriptionData said = await(() -> admin.querySubscription(GROUP, SECOND));
        System.out.println("subscription " + said.getTopic() + " " + said.getSubString() + " " + said.getExpressionType());
        consumer.shutdown();
    }

    private static void commit(MQClientAPIImpl api, String broker, String group, long offset) throws Exception {
        UpdateConsumerOffsetRequestHeader header = new UpdateConsumerOffsetRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(TOPIC);
        header.setQueueId(0);
        header.setCommitOffset(offset);
        api.updateConsumerOffset(broker, header, CALL_MS);
    }

    /** What a question that may fail, or find nothing, finds before long. */
    private static <T> T await(Callable<T> question) throws Exception {
        long until = System.nanoTime() + 3 * CALL_MS * 1_000_000;
        while (true) {
            try {
                T found = question.call();
                if (found != null) {
                    return found;
                }
            } catch (MQClientException | MQBrokerException error) {
                if (System.nanoTime() > until) {
                    throw error;
                }
            }
            if (System.nanoTime() > until) {
                throw new IllegalStateException("nothing was found");
            }
            Thread.sleep(100);
        }
    }
}
