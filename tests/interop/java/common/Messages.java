package towline.interop;

import com.alibaba.fastjson.JSONObject;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/** Messages from JSON, and to JSON as a consumer would see them. */
final class Messages {
    private static final int LEVEL = 5;

    private Messages() {
    }

    /** One message as a broker hands it to its store. Properties are written by the release itself. */
    static MessageExt single(JSONObject spec) throws Exception {
        Map<String, String> properties = properties(spec);
        String text = spec.getString("raw_properties");
        MessageExt message = Release.inner(text != null ? text : MessageDecoder.messageProperties2String(properties));
        MessageAccessor.setProperties(message, properties);
        address(message, spec);
        byte[] body = Base64.getDecoder().decode(spec.getString("body"));
        int sysFlag = spec.getIntValue("sys_flag");
        String compression = spec.getString("compression");
        if (compression != null) {
            CompressionType type = CompressionType.of(compression);
            body = CompressorFactory.getCompressor(type).compress(body, LEVEL);
            sysFlag |= MessageSysFlag.COMPRESSED_FLAG | type.getCompressionFlag();
        }
        message.setBody(body);
        message.setSysFlag(sysFlag);
        message.setFlag(spec.getIntValue("flag"));
        message.setReconsumeTimes(spec.getIntValue("reconsume_times"));
        message.setPreparedTransactionOffset(spec.getLongValue("prepared_transaction_offset"));
        return message;
    }

    /** Several messages as one request of a client. */
    static MessageExtBatch batch(JSONObject spec) {
        List<Message> members = new ArrayList<>();
        for (Object each : spec.getJSONArray("batch")) {
            JSONObject member = (JSONObject) each;
            Message message = new Message(spec.getString("topic"), Base64.getDecoder().decode(member.getString("body")));
            MessageAccessor.setProperties(message, properties(member));
            message.setFlag(member.getIntValue("flag"));
            members.add(message);
        }
        MessageExtBatch batch = new MessageExtBatch();
        batch.setBody(MessageDecoder.encodeMessages(members));
        address(batch, spec);
        return batch;
    }

    private static void address(MessageExt message, JSONObject spec) {
        message.setTopic(spec.getString("topic"));
        message.setQueueId(spec.getIntValue("queue_id"));
        message.setBornTimestamp(spec.getLongValue("born_timestamp"));
        message.setBornHost(new InetSocketAddress(spec.getString("born_host"), spec.getIntValue("born_port")));
        message.setStoreHost(new InetSocketAddress(spec.getString("store_host"), spec.getIntValue("store_port")));
    }

    private static Map<String, String> properties(JSONObject spec) {
        Map<String, String> properties = new HashMap<>();
        spec.getJSONObject("properties").forEach((name, value) -> properties.put(name, (String) value));
        return properties;
    }

    /** Everything a consumer sees of a record; digests stand for bytes. */
    static Map<String, Object> seen(ByteBuffer stored) throws Exception {
        byte[] record = new byte[stored.remaining()];
        stored.duplicate().get(record);
        MessageExt message = MessageDecoder.decode(ByteBuffer.wrap(record), true, true);
        if (message == null) {
            throw new IllegalStateException("a record of " + record.length + " bytes cannot be decoded");
        }
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("topic", message.getTopic());
        seen.put("queue_id", message.getQueueId());
        seen.put("queue_offset", message.getQueueOffset());
        seen.put("physical_offset", message.getCommitLogOffset());
        seen.put("size", message.getStoreSize());
        seen.put("record", digest(record));
        seen.put("body", digest(body));
        seen.put("body_size", body.length);
        seen.put("body_crc", message.getBodyCRC());
        seen.put("properties", new TreeMap<>(message.getProperties()));
        seen.put("flag", message.getFlag());
        // RocketMQ 5 forgets that a body was compressed once it has been restored.
        seen.put("sys_flag", ByteBuffer.wrap(record).getInt(MessageDecoder.SYSFLAG_POSITION));
        seen.put("born_timestamp", message.getBornTimestamp());
        seen.put("store_timestamp", message.getStoreTimestamp());
        seen.put("born_host", host(message.getBornHost()));
        seen.put("store_host", host(message.getStoreHost()));
        seen.put("reconsume_times", message.getReconsumeTimes());
        seen.put("message_id", message.getMsgId());
        return seen;
    }

    private static String host(Object address) {
        InetSocketAddress host = (InetSocketAddress) address;
        StringBuilder text = new StringBuilder();
        for (byte each : host.getAddress().getAddress()) {
            text.append(String.format("%02x", each));
        }
        return text.append(':').append(host.getPort()).toString();
    }

    static String digest(byte[] bytes) throws Exception {
        StringBuilder text = new StringBuilder();
        for (byte each : MessageDigest.getInstance("SHA-256").digest(bytes)) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }
}
