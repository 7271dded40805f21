package towline.interop;

import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What RocketMQ 5 spells in its own way. */
final class Release {
    private Release() {
    }

    static DefaultMessageStore store(MessageStoreConfig config) throws IOException {
        return new DefaultMessageStore(
            config,
            new BrokerStatsManager("interop", true),
            (topic, queueId, logicOffset, tagsCode, storeTime, bitMap, properties) -> { },
            new BrokerConfig(),
            new ConcurrentHashMap<>());
    }

    static MessageExt inner(String properties) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setPropertiesString(properties);
        return message;
    }

    static PutMessageResult put(DefaultMessageStore store, MessageExt message) {
        return store.putMessage((MessageExtBrokerInner) message);
    }

    /** Names and hashes of a subscription by tags. */
    static Map<String, Object> tags(String text) throws Exception {
        SubscriptionData data = FilterAPI.buildSubscriptionData("topic", text);
        return Map.of("text", data.getSubString(), "names", data.getTagsSet(), "codes", data.getCodeSet());
    }
}
