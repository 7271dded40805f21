package towline.interop;

import org.apache.rocketmq.broker.filter.ConsumerFilterData;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.ExpressionMessageFilter;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.store.MessageFilter;

/** What the broker of RocketMQ 4.9 spells in its own way. */
final class BrokerRelease {
    private BrokerRelease() {
    }

    /** What decides about the entries of a queue for a subscription by SQL92. */
    static MessageFilter pulled(ConsumerFilterData data, ConsumerFilterManager manager) throws Exception {
        SubscriptionData asked = FilterAPI.build(data.getTopic(), data.getExpression(), data.getExpressionType());
        return new ExpressionMessageFilter(asked, data, manager);
    }
}
