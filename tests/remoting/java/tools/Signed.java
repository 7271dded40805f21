package towline.remoting;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** A client that signs: NAMESRV TOPIC ACCESS SECRET. It sends, and reads, and prints what became of both. */
public final class Signed {
    private Signed() {
    }

    public static void main(String[] words) {
        RPCHook hook = new AclClientRPCHook(new SessionCredentials(words[2], words[3]));
        try {
            System.out.println("sends: " + sends(words[0], words[1], hook));
            System.out.println("reads: " + reads(words[0], words[1], hook));
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    private static String sends(String names, String topic, RPCHook hook) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("signing", hook);
        producer.setNamesrvAddr(names);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        try {
            Message message = new Message(topic, "tag", "key", "signed \u00fc".getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("name", "\u00e4");
            String said = producer.send(message).getSendStatus().name();
            List<Message> batch = new ArrayList<>();
            for (int number = 0; number < 3; number++) {
                batch.add(new Message(topic, ("batch " + number).getBytes(StandardCharsets.UTF_8)));
            }
            return said + ", " + producer.send(batch).getSendStatus();
        } catch (MQClientException failed) { // 5.x wraps what the broker says
            if (failed.getCause() instanceof MQBrokerException refused) {
                return "code " + refused.getResponseCode();
            }
            throw failed;
        } catch (MQBrokerException refused) {
            return "code " + refused.getResponseCode();
        } finally {
            producer.shutdown();
        }
    }

    private static String reads(String names, String topic, RPCHook hook) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("reading", hook);
        consumer.setNamesrvAddr(names);
        consumer.start();
        try {
            int found = 0;
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                PullResult result = consumer.pull(queue, "*", 0, 32);
                found += result.getMsgFoundList() == null ? 0 : result.getMsgFoundList().size();
            }
            return found + " messages";
        } catch (MQBrokerException refused) {
            return "code " + refused.getResponseCode();
        } finally {
            consumer.shutdown();
        }
    }
}
