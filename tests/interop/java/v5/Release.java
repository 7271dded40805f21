package towline.interop;

import java.io.IOException;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
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
}
