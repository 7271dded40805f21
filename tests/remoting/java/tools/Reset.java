package towline.remoting;

import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** A push consumer whose offsets are set back while it runs reads everything once more. */
public class Reset {
    static final int COUNT = 5;

    public static void main(String[] args) throws Exception {
        String address = args[0];
        String topic = args[1];
        DefaultMQProducer producer = new DefaultMQProducer("resetting-producer");
        producer.setNamesrvAddr(address);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        for (int number = 0; number < COUNT; number++) {
            producer.send(new Message(topic, ("" + number).getBytes()));
        }
        BlockingQueue<String> came = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("resetting");
        consumer.setNamesrvAddr(address);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> came.add(new String(message.getBody())));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("first " + read(came));
        DefaultMQAdminExt admin = new DefaultMQAdminExt(20_000);
        admin.setNamesrvAddr(address);
        admin.start();
        admin.resetOffsetByTimestamp(topic, "resetting", 0, true);
        System.out.println("again " + read(came));
        admin.shutdown();
        consumer.shutdown();
        producer.shutdown();
        System.exit(0);
    }

    static Set<String> read(BlockingQueue<String> came) throws InterruptedException {
        Set<String> found = new ConcurrentSkipListSet<>();
        while (found.size() < COUNT) {
            String body = came.poll(90, TimeUnit.SECONDS);
            if (body == null) {
                return found;
            }
            found.add(body);
        }
        return found;
    }
}
