package org.apache.rocketmq.test.base;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.MQPullConsumer;
import org.apache.rocketmq.client.consumer.MQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.MQProducer;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.test.client.rmq.RMQAsyncSendProducer;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
import org.apache.rocketmq.test.client.rmq.RMQTransactionalProducer;
import org.apache.rocketmq.test.clientinterface.AbstractMQConsumer;
import org.apache.rocketmq.test.clientinterface.AbstractMQProducer;
import org.apache.rocketmq.test.factory.ConsumerFactory;
import org.apache.rocketmq.test.listener.AbstractListener;
import org.apache.rocketmq.test.util.MQRandomUtils;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What RocketMQ's integration tests stand on, for a cluster of one broker that runs already: all that it knows is the
 * address of the name server. It takes the place of the class of the same name, which starts brokers in its own process.
 * Tests that reach into such a broker do not find here what they look for. Names of both lines, 4.9 and 5.
 */
public class BaseConf {
    public static final String NAMESRV_ADDR = System.getProperty("towline.names");
    public static String nsAddr = NAMESRV_ADDR;

    protected static final String CLUSTER_NAME;
    protected static final String BROKER1_NAME;
    protected static final String BROKER2_NAME;
    protected static final String BROKER3_NAME;
    protected static String clusterName;
    protected static String broker1Name;
    protected static String broker2Name;
    protected static int brokerNum = 1;
    protected static int waitTime = 5;
    protected static int consumeTime = 120_000;
    protected static boolean debug;
    protected static List<Object> mqClients = new ArrayList<>();

    private static final int QUEUES = 8;
    private static final long ADMIN_MS = 30_000;
    private static final long ROUTE_MS = 30_000;
    private static final long LOOK_MS = 20;
    private static final DefaultMQAdminExt ADMIN = new DefaultMQAdminExt(ADMIN_MS);
    private static final String BROKER;

    static {
        ADMIN.setNamesrvAddr(NAMESRV_ADDR);
        try {
            ADMIN.start();
            var cluster = ADMIN.examineBrokerClusterInfo();
            CLUSTER_NAME = cluster.getClusterAddrTable().keySet().iterator().next();
            BROKER1_NAME = cluster.getBrokerAddrTable().keySet().iterator().next();
            BROKER = cluster.getBrokerAddrTable().get(BROKER1_NAME).selectBrokerAddr();
        } catch (Exception error) {
            throw new IllegalStateException("no broker at " + NAMESRV_ADDR, error);
        }
        BROKER2_NAME = BROKER3_NAME = broker1Name = broker2Name = BROKER1_NAME;
        clusterName = CLUSTER_NAME;
    }

    public static String initTopic() {
        return initTopicWithName(MQRandomUtils.getRandomTopic());
    }

    /** Made when its route is known. */
    public static String initTopicWithName(String topic) {
        try {
            TopicConfig config = new TopicConfig(topic);
            config.setReadQueueNums(QUEUES);
            config.setWriteQueueNums(QUEUES);
            ADMIN.createAndUpdateTopicConfig(BROKER, config);
            long until = System.currentTimeMillis() + ROUTE_MS;
            while (true) {
                try {
                    ADMIN.examineTopicRouteInfo(topic);
                    return topic;
                } catch (MQClientException error) {
                    if (System.currentTimeMillis() > until) {
                        throw error;
                    }
                    Thread.sleep(LOOK_MS);
                }
            }
        } catch (Exception error) {
            throw new IllegalStateException("no topic " + topic, error);
        }
    }

    /** A name alone: the group is made by the first heartbeat of a member. */
    public static String initConsumerGroup() {
        return MQRandomUtils.getRandomConsumerGroup();
    }

    public static String initConsumerGroup(String group) {
        return group;
    }

    public static RMQNormalProducer getProducer(String names, String topic) {
        return kept(new RMQNormalProducer(names, topic, false));
    }

    public static RMQNormalProducer getProducer(String names, String topic, boolean useTls) {
        return kept(new RMQNormalProducer(names, topic, useTls));
    }

    public static RMQNormalProducer getProducer(String names, String topic, String group, String instance) {
        return kept(new RMQNormalProducer(names, topic, group, instance));
    }

    public static RMQAsyncSendProducer getAsyncProducer(String names, String topic) {
        return kept(new RMQAsyncSendProducer(names, topic));
    }

    public static RMQTransactionalProducer getTransactionalProducer(
            String names, String topic, TransactionListener listener) {
        return kept(new RMQTransactionalProducer(names, topic, false, listener));
    }

    public static RMQNormalConsumer getConsumer(
            String names, String topic, String expression, AbstractListener listener) {
        return getConsumer(names, initConsumerGroup(), topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
            String names, String topic, String expression, AbstractListener listener, boolean useTls) {
        return getConsumer(names, initConsumerGroup(), topic, expression, listener, useTls);
    }

    public static RMQNormalConsumer getConsumer(
            String names, String group, String topic, String expression, AbstractListener listener) {
        return getConsumer(names, group, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
            String names, String group, String topic, String expression, AbstractListener listener, boolean useTls) {
        return kept(ConsumerFactory.getRMQNormalConsumer(names, group, topic, expression, listener, useTls));
    }

    public static Set<String> getBrokers() {
        return new HashSet<>(List.of(BROKER1_NAME));
    }

    /** Ends the clients of the test that has just run. */
    public static void shutdown() {
        List<Object> ending = List.copyOf(mqClients);
        mqClients.clear();
        shutdown(ending);
    }

    public static void shutdown(List<Object> clients) {
        for (Object client : clients) {
            if (client instanceof AbstractMQProducer made) {
                made.shutdown();
            } else if (client instanceof AbstractMQConsumer made) {
                made.shutdown();
            } else if (client instanceof MQProducer made) {
                made.shutdown();
            } else if (client instanceof MQPushConsumer made) {
                made.shutdown();
            } else if (client instanceof MQPullConsumer made) {
                made.shutdown();
            }
        }
    }

    private static <C> C kept(C client) {
        mqClients.add(client);
        return client;
    }
}
