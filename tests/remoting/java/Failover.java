package towline.remoting;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.hook.SendMessageContext;
import org.apache.rocketmq.client.hook.SendMessageHook;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * A real producer and a group of two real push consumers while masters come and go: NAMESRV TOPIC. One message after the
 * other is sent until it is acknowledged. All that happens is printed, a line each: "tried BODY" at each try,
 * "acknowledged BODY", and what FailoverMember says. Lines on the standard input: "leave" and "return" (the second member),
 * "end" (of the sending, which is told by "stopped"). The program ends with the standard input.
 */
public final class Failover {
    static final int POLL_MS = 1_000;
    private static final int SEND_MS = 3_000;

    private static volatile boolean sends = true;

    private Failover() {
    }

    public static void main(String[] words) {
        int status = 1;
        try {
            run(words[0], words[1]);
            status = 0;
        } catch (Exception error) {
            error.printStackTrace();
        }
        System.exit(status);
    }

    static void say(Object... words) {
        System.out.println(Arrays.stream(words).map(Object::toString).collect(Collectors.joining(" ")));
    }

    private static void run(String names, String topic) throws Exception {
        DefaultMQProducer producer = producer(names);
        FailoverMember first = FailoverMember.join(names, topic, "first");
        FailoverMember second = FailoverMember.join(names, topic, "second");
        Thread sender = new Thread(() -> send(producer, topic));
        sender.start();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            switch (order) {
                case "leave":
                    second.leave();
                    break;
                case "return":
                    second = FailoverMember.join(names, topic, "second");
                    break;
                case "end":
                    sends = false;
                    sender.join();
                    say("stopped");
                    break;
                default:
                    throw new IllegalArgumentException(order);
            }
        }
        first.leave();
        second.leave();
        producer.shutdown();
    }

    private static DefaultMQProducer producer(String names) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("failover-producers");
        producer.setNamesrvAddr(names);
        producer.setPollNameServerInterval(POLL_MS);
        producer.setHeartbeatBrokerInterval(POLL_MS);
        producer.setSendMsgTimeout(SEND_MS);
        producer.getDefaultMQProducerImpl().registerSendMessageHook(new Tries());
        producer.start();
        return producer;
    }

    private static void send(DefaultMQProducer producer, String topic) {
        for (int number = 0; sends;) {
            String body = Integer.toString(number);
            try {
                Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
                if (producer.send(message).getSendStatus() == SendStatus.SEND_OK) {
                    say("acknowledged", body);
                    number++;
                }
            } catch (Exception away) {
                pause();
            }
        }
    }

    static void pause() {
        try {
            Thread.sleep(20);
        } catch (InterruptedException end) {
            sends = false;
        }
    }

    /** Overhears each request that sends a message, also those that the client repeats by itself. */
    private static final class Tries implements SendMessageHook {
        @Override
        public String hookName() {
            return "tries";
        }

        @Override
        public void sendMessageBefore(SendMessageContext context) {
            say("tried", new String(context.getMessage().getBody(), StandardCharsets.UTF_8));
        }

        @Override
        public void sendMessageAfter(SendMessageContext context) {
        }
    }
}
