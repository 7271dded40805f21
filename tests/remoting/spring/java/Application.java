package towline.remoting;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.spring.core.RocketMQLocalRequestCallback;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.apache.rocketmq.spring.support.DefaultRocketMQListenerContainer;
import org.apache.rocketmq.spring.support.RocketMQHeaders;
import org.springframework.boot.Banner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.messaging.Message;
import org.springframework.messaging.MessagingException;
import org.springframework.messaging.support.MessageBuilder;

/** Sends with a RocketMQTemplate what the listeners of the same application hear; prints both. Words: names, topic. */
public final class Application {
    private static final int QUEUES = 4;
    private static final long WAIT_MS = 60_000;
    private static final long LOOK_MS = 20;
    private static final int SEND_MS = 10_000;

    private final RocketMQTemplate template;
    private final String topic;

    private Application(RocketMQTemplate template, String topic) {
        this.template = template;
        this.topic = topic;
    }

    /** Ends in any case: what a failure leaves behind has threads. */
    public static void main(String[] words) {
        try {
            start(words[0], words[1]);
            System.out.println("all ran");
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }

    private static void start(String names, String topic) throws Exception {
        Map<String, Object> settings = new LinkedHashMap<>();
        settings.put("topic", topic);
        settings.put("logging.level.root", "OFF");
        settings.put("rocketmq.name-server", names);
        settings.put("rocketmq.producer.group", topic + "-sellers");
        settings.put("rocketmq.producer.send-message-timeout", SEND_MS);
        for (String consumer : List.of("consumer", "pull-consumer")) { // as 2.2 calls it, and as 2.3 does
            settings.put("rocketmq." + consumer + ".group", topic + "-pulled");
            settings.put("rocketmq." + consumer + ".topic", topic);
            settings.put("rocketmq." + consumer + ".selector-expression", "pulled");
        }
        List<Class<?>> parts = new ArrayList<>(Listeners.ALL);
        parts.add(Parts.class);
        SpringApplication application = new SpringApplication(parts.toArray(Class[]::new));
        application.setDefaultProperties(settings);
        application.setBannerMode(Banner.Mode.OFF);
        application.setLogStartupInfo(false);
        application.setWebApplicationType(WebApplicationType.NONE);
        try (var context = application.run()) {
            for (var each : context.getBeansOfType(DefaultRocketMQListenerContainer.class).values()) {
                awaitQueues(each, topic);
            }
            new Application(context.getBean(RocketMQTemplate.class), topic).run();
        }
    }

    private void run() throws Exception {
        single();
        several();
        later();
        ordered();
        transactions();
        requests();
        pulled();
        refused();
        for (var heard : Heard.expected().entrySet()) {
            System.out.println(heard.getKey() + " heard " + Heard.await(heard.getKey(), heard.getValue(), WAIT_MS));
        }
    }

    private void single() throws Exception {
        told("syncSend", template.syncSend(topic + ":plain", "sync"));
        Waiting waiting = new Waiting();
        template.asyncSend(topic + ":plain", "async", waiting);
        told("asyncSend", waiting.result());
        template.sendOneWay(topic + ":plain", "one-way");
        template.convertAndSend(topic + ":plain", "converted");
        template.convertAndSend(topic + ":order", new Order("o-1", 3));
        Message<?> whole = MessageBuilder.withPayload("whole").setHeader(RocketMQHeaders.KEYS, "k1 k2")
                .setHeader("colour", "red").build();
        told("with headers", template.syncSend(topic + ":whole", whole));
        told("to be retried", template.syncSend(topic + ":again", "again"));
        for (int number = 0; number < 5; number++) {
            Message<?> numbered = MessageBuilder.withPayload("number " + number).setHeader("number", number).build();
            told("for SQL", template.syncSend(topic + ":numbered", numbered));
        }
    }

    private void several() {
        List<Message<?>> messages = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            messages.add(MessageBuilder.withPayload("of a batch, " + number).build());
        }
        told("batch", template.syncSend(topic + ":plain", messages));
    }

    private void later() {
        Message<?> message = MessageBuilder.withPayload("late").build();
        told("delayed", template.syncSend(topic + ":late", message, SEND_MS, 1));
    }

    private void ordered() throws Exception {
        for (int number = 0; number < 4; number++) {
            for (String key : List.of("a", "b")) {
                String body = key + number;
                if (number == 3) {
                    Waiting waiting = new Waiting();
                    template.asyncSendOrderly(topic + ":ordered", body, key, waiting);
                    told("asyncSendOrderly", waiting.result());
                } else {
                    told("syncSendOrderly", template.syncSendOrderly(topic + ":ordered", body, key));
                }
            }
        }
        template.sendOneWayOrderly(topic + ":ordered", "a4", "a");
    }

    private void transactions() {
        for (String wanted : List.of("COMMIT", "ROLLBACK", "UNKNOWN")) {
            Message<?> message = MessageBuilder.withPayload("transaction " + wanted).build();
            var result = template.sendMessageInTransaction(topic + ":transaction", message, wanted);
            System.out.println("transaction " + wanted + " " + result.getSendStatus() + " "
                    + result.getLocalTransactionState());
        }
    }

    private void requests() throws Exception {
        System.out.println("answer " + template.sendAndReceive(topic + ":ask", "question", String.class, SEND_MS));
        CompletableFuture<String> answer = new CompletableFuture<>();
        template.sendAndReceive(topic + ":ask", "second question", new RocketMQLocalRequestCallback<String>() {
            @Override
            public void onSuccess(String said) {
                answer.complete(said);
            }

            @Override
            public void onException(Throwable error) {
                answer.completeExceptionally(error);
            }
        }, SEND_MS);
        System.out.println("answer " + answer.get(WAIT_MS, TimeUnit.MILLISECONDS));
        try {
            template.sendAndReceive(topic + ":nobody", "to nobody", String.class, 500);
        } catch (RuntimeException error) {
            System.out.println("no answer: " + error.getClass().getSimpleName());
        }
    }

    private void pulled() {
        for (int number = 0; number < 3; number++) {
            told("to be pulled", template.syncSend(topic + ":pulled", "pulled " + number));
        }
        long until = System.currentTimeMillis() + WAIT_MS;
        List<String> found = new ArrayList<>();
        while (found.size() < 3 && System.currentTimeMillis() < until) {
            found.addAll(template.receive(String.class, 1_000));
        }
        found.sort(null);
        System.out.println("receive " + found);
    }

    private void refused() {
        try {
            told("not refused", template.syncSend("no topic", "refused"));
        } catch (MessagingException error) {
            System.out.println("refused: " + error.getCause().getClass().getSimpleName());
        }
    }

    private static void told(String what, SendResult result) {
        System.out.println(what + " " + result.getSendStatus());
    }

    /** Until the listener has every queue of the topic: a broadcast one hears only what is sent from then on. */
    private static void awaitQueues(DefaultRocketMQListenerContainer container, String topic) throws Exception {
        var held = container.getConsumer().getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable();
        long until = System.currentTimeMillis() + WAIT_MS;
        while (held.keySet().stream().filter(queue -> queue.getTopic().equals(topic)).count() < QUEUES) {
            if (System.currentTimeMillis() > until) {
                throw new IllegalStateException(container.getConsumerGroup() + " has no queues");
            }
            Thread.sleep(LOOK_MS);
        }
    }

    /** Whatever the starter makes by its settings. */
    @EnableAutoConfiguration
    public static class Parts {
    }

    /** What an asynchronous send leads to. */
    private static final class Waiting implements SendCallback {
        private final CompletableFuture<SendResult> found = new CompletableFuture<>();

        @Override
        public void onSuccess(SendResult result) {
            found.complete(result);
        }

        @Override
        public void onException(Throwable error) {
            found.completeExceptionally(error);
        }

        SendResult result() throws Exception {
            return found.get(WAIT_MS, TimeUnit.MILLISECONDS);
        }
    }
}
