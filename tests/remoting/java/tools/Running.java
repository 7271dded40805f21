package towline.remoting;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.body.ConsumeMessageDirectlyResult;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What a push consumer that runs is asked by a tool: what it does, and to handle a message once more. */
public class Running {
    static final String GROUP = "running";
    static final long WAIT_S = 60;

    public static void main(String[] args) throws Exception {
        String address = args[0];
        String topic = args[1];
        DefaultMQProducer producer = new DefaultMQProducer("running-producer");
        producer.setNamesrvAddr(address);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        producer.send(new Message(topic, "TagA", "key", "the message".getBytes()));
        BlockingQueue<MessageExt> came = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(GROUP);
        consumer.setNamesrvAddr(address);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "TagA");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            came.addAll(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        MessageExt message = came.poll(WAIT_S, TimeUnit.SECONDS);
        System.out.println("came " + new String(message.getBody()));
        DefaultMQAdminExt admin = new DefaultMQAdminExt(20_000);
        admin.setNamesrvAddr(address);
        admin.start();
        String client = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        ConsumerRunningInfo info = admin.getConsumerRunningInfo(GROUP, client, true);
        info.getSubscriptionSet().forEach(each -> System.out.println("reads " + each.getTopic() + " " + each.getSubString()));
        System.out.println("queues " + info.getMqTable().keySet().stream().filter(each -> each.getTopic().equals(topic)).count());
        System.out.println("threads " + !info.getJstack().isEmpty());
        ConsumeMessageDirectlyResult result = admin.consumeMessageDirectly(GROUP, client, topic, message.getMsgId());
        System.out.println("once more " + result.getConsumeResult());
        System.out.println("came " + new String(came.poll(WAIT_S, TimeUnit.SECONDS).getBody()));
        admin.shutdown();
        consumer.shutdown();
        producer.shutdown();
        System.exit(0);
    }
}
