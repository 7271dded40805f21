package towline.remoting;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** A real producer: NAMESRV TOPIC COUNT. Sends by every way there is, and prints one line for each. */
public final class Produce {
    private Produce() {
    }

    public static void main(String[] words) throws Exception {
        String address = words[0];
        String topic = words[1];
        int count = Integer.parseInt(words[2]);
        DefaultMQProducer producer = new DefaultMQProducer("pg");
        producer.setNamesrvAddr(address);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        try {
            SendResult first = producer.send(message(topic, "first", "TagA"));
            System.out.println("first " + first.getSendStatus() + " " + first.getQueueOffset() + " " + first.getOffsetMsgId());
            long began = System.nanoTime();
            for (int number = 0; number < count; number++) {
                SendResult result = producer.send(message(topic, "sync" + number, "TagA"));
                if (!result.getSendStatus().name().equals("SEND_OK")) {
                    throw new IllegalStateException(result.toString());
                }
            }
            System.out.println("sync " + count * 1_000_000_000L / (System.nanoTime() - began) + "/s");
            MessageQueue queue = producer.fetchPublishMessageQueues(topic).get(0);
            SendResult placed = producer.send(message(topic, "placed", "TagB"), queue);
            System.out.println("placed " + placed.getSendStatus() + " " + placed.getMessageQueue().getQueueId());
            List<Message> many = new ArrayList<>();
            for (int number = 0; number < 32; number++) {
                many.add(message(topic, "batch" + number, "TagC"));
            }
            SendResult batch = producer.send(many);
            System.out.println("batch " + batch.getSendStatus() + " " + batch.getOffsetMsgId().split(",").length);
            producer.sendOneway(message(topic, "oneway", "TagD"));
            SendResult large = producer.send(new Message(topic, "TagE", "k", new byte[10_000]));
            System.out.println("compressed " + large.getSendStatus());
            async(producer, topic, count);
        } finally {
            producer.shutdown();
        }
        System.out.println("over");
        System.exit(0);
    }

    private static void async(DefaultMQProducer producer, String topic, int count) throws Exception {
        CountDownLatch left = new CountDownLatch(count);
        AtomicInteger failed = new AtomicInteger();
        long began = System.nanoTime();
        for (int number = 0; number < count; number++) {
            producer.send(message(topic, "async" + number, "TagF"), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    left.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    System.out.println("async " + error);
                    failed.incrementAndGet();
                    left.countDown();
                }
            });
        }
        boolean all = left.await(60, TimeUnit.SECONDS);
        System.out.println("async " + all + " failed " + failed + " " + count * 1_000_000_000L / (System.nanoTime() - began) + "/s");
    }

    private static Message message(String topic, String body, String tag) {
        return new Message(topic, tag, body, body.getBytes(StandardCharsets.UTF_8));
    }
}
