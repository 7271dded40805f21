package towline.remoting;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A real producer and a real member of a group: NAMESRV TOPIC GROUP. A line "send N" on the standard input sends N
 * messages, "request TOPIC TEXT" sends TEXT there and prints the reply; what the member consumes is printed, a line each, and
 * replied to where it is a request. It ends with the standard input.
 */
public final class Member {
    private static final int SEND_MS = 30_000;

    private Member() {
    }

    public static void main(String[] words) {
        try {
            run(words[0], words[1], words[2]);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    private static void run(String names, String topic, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("member-producers");
        producer.setNamesrvAddr(names);
        producer.setSendMsgTimeout(SEND_MS);
        producer.setMqClientApiTimeout(SEND_MS);
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(names);
        consumer.setMqClientApiTimeout(SEND_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                System.out.println("consumed " + message.getQueueId() + " "
                    + new String(message.getBody(), StandardCharsets.UTF_8) + " " + message.getTags());
                if (message.getProperty(MessageConst.PROPERTY_MESSAGE_REPLY_TO_CLIENT) != null) {
                    reply(producer, message);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        System.out.println("started");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            if (order.startsWith("request ")) {
                String[] words = order.split(" ", 3);
                Message question = new Message(words[1], "question", words[2].getBytes(StandardCharsets.UTF_8));
                Message reply = producer.request(question, SEND_MS);
                System.out.println("reply " + new String(reply.getBody(), StandardCharsets.UTF_8));
                continue;
            }
            int count = Integer.parseInt(order.substring("send ".length()));
            for (int number = 0; number < count; number++) {
                producer.send(new Message(topic, "java", ("java " + number).getBytes(StandardCharsets.UTF_8)));
            }
            System.out.println("sent " + count);
        }
        consumer.shutdown();
        producer.shutdown();
    }

    private static void reply(DefaultMQProducer producer, MessageExt request) {
        try {
            byte[] body = new String(request.getBody(), StandardCharsets.UTF_8).toUpperCase().getBytes(StandardCharsets.UTF_8);
            producer.send(MessageUtil.createReplyMessage(request, body));
        } catch (Exception error) {
            error.printStackTrace();
        }
    }
}
