package towline.remoting;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.spring.annotation.ConsumeMode;
import org.apache.rocketmq.spring.annotation.MessageModel;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.annotation.SelectorType;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.apache.rocketmq.spring.core.RocketMQReplyListener;
import org.springframework.messaging.Message;

/** Each in a group of its own. */
final class Listeners {
    static final List<Class<?>> ALL = List.of(Shared.class, Typed.class, Whole.class, Broadcast.class, Ordered.class,
            Sql.class, Again.class, Late.class, Asked.class, Transactions.class, Committed.class);

    private Listeners() {
    }

    @RocketMQMessageListener(topic = "${topic}", consumerGroup = "${topic}-shared", selectorExpression = "plain")
    public static class Shared implements RocketMQListener<String> {
        @Override
        public void onMessage(String body) {
            Heard.add("shared", body);
        }
    }

    @RocketMQMessageListener(topic = "${topic}", consumerGroup = "${topic}-typed", selectorExpression = "order")
    public static class Typed implements RocketMQListener<Order> {
        @Override
        public void onMessage(Order order) {
            Heard.add("typed", order.getId() + " " + order.getCount());
        }
    }

    @RocketMQMessageListener(topic = "${topic}", consumerGroup = "${topic}-whole", selectorExpression = "whole")
    public static class Whole implements RocketMQListener<MessageExt> {
        @Override
        public void onMessage(MessageExt message) {
            Heard.add("whole", message.getTags() + " " + message.getKeys() + " " + message.getUserProperty("colour")
                    + " " + message.getReconsumeTimes());
        }
    }

    @RocketMQMessageListener(topic = "${topic}", consumerGroup = "${topic}-broadcast", selectorExpression = "plain",
            messageModel = MessageModel.BROADCASTING)
    public static class Broadcast implements RocketMQListener<String> {
        @Override
        public void onMessage(String body) {
            Heard.add("broadcast", body);
        }
    }

    /** Tells of each message how many of the same key came before it. */
    @RocketMQMessageListener(topic = "${topic}", consumerGroup = "${topic}-ordered", selectorExpression = "ordered",
            consumeMode = ConsumeMode.ORDERLY)
    public static class Ordered implements RocketMQListener<String> {
        private final Map<String, Integer> before = new HashMap<>();

        @Override
        public synchronized void onMessage(String body) {
            int number = before.merge(body.substring(0, 1), 1, Integer::sum);
            Heard.add("ordered", body + " as number " + (number - 1));
        }
    }

    @RocketMQMessageListener(topic = "${topic}", consumerGroup = "${topic}-sql", selectorType = SelectorType.SQL92,
            selectorExpression = "number between 1 and 3")
    public static class Sql implements RocketMQListener<String> {
        @Override
        public void onMessage(String body) {
            Heard.add("sql", body);
        }
    }

    /** Handles what it gets the second time. */
    @RocketMQMessageListener(topic = "${topic}", consumerGroup = "${topic}-again", selectorExpression = "again",
            delayLevelWhenNextConsume = 1)
    public static class Again implements RocketMQListener<MessageExt> {
        @Override
        public void onMessage(MessageExt message) {
            Heard.add("again", new String(message.getBody()) + " " + message.getReconsumeTimes());
            if (message.getReconsumeTimes() == 0) {
                throw new IllegalStateException("not now");
            }
        }
    }

    @RocketMQMessageListener(topic = "${topic}", consumerGroup = "${topic}-late", selectorExpression = "late")
    public static class Late implements RocketMQListener<String> {
        @Override
        public void onMessage(String body) {
            Heard.add("late", body);
        }
    }

    @RocketMQMessageListener(topic = "${topic}", consumerGroup = "${topic}-asked", selectorExpression = "ask")
    public static class Asked implements RocketMQReplyListener<String, String> {
        @Override
        public String onMessage(String question) {
            return "to the " + question;
        }
    }

    @RocketMQTransactionListener
    public static class Transactions implements RocketMQLocalTransactionListener {
        @Override
        public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object wanted) {
            return RocketMQLocalTransactionState.valueOf((String) wanted);
        }

        @Override
        public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
            return new String((byte[]) message.getPayload()).endsWith("ROLLBACK")
                    ? RocketMQLocalTransactionState.ROLLBACK : RocketMQLocalTransactionState.COMMIT;
        }
    }

    @RocketMQMessageListener(topic = "${topic}", consumerGroup = "${topic}-committed",
            selectorExpression = "transaction")
    public static class Committed implements RocketMQListener<String> {
        @Override
        public void onMessage(String body) {
            Heard.add("transaction", body);
        }
    }
}
