package towline.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedWriter;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A DefaultMessageStore on a directory, at most one at a time. */
public final class StoreCommands implements Tool.Commands {
    private static final int BATCH = 32;
    private static final long PATIENCE_MS = 30_000;
    private final PrintStream answers;
    private DefaultMessageStore store;

    public StoreCommands(PrintStream answers) {
        this.answers = answers;
    }

    @Override
    public Map<String, Object> obey(JSONObject command) throws Exception {
        switch (command.getString("op")) {
            case "open":
                return open(command);
            case "put":
                return put(command);
            case "stream":
                return stream(command);
            case "await_dispatched":
                awaitDispatched();
                return Map.of();
            case "read":
                return read(command);
            case "query":
                return query(command);
            case "offsets_by_time":
                return offsetsByTime(command);
            case "properties":
                return properties(command);
            case "close":
                store.shutdown();
                store = null;
                return Map.of();
            case "halt":
                Runtime.getRuntime().halt(1);
                return Map.of();
            default:
                throw new IllegalArgumentException(command.toJSONString());
        }
    }

    private Map<String, Object> open(JSONObject command) throws Exception {
        Properties wanted = new Properties();
        command.getJSONObject("config").forEach((name, value) -> wanted.setProperty(name, String.valueOf(value)));
        MessageStoreConfig config = new MessageStoreConfig();
        MixAll.properties2Object(wanted, config);
        store = Release.store(config);
        boolean loaded = store.load();
        if (!loaded) {
            store.shutdown();
            store = null;
            return Map.of("loaded", false);
        }
        store.start();
        awaitDispatched();
        return Map.of("loaded", true, "min", store.getMinPhyOffset(), "max", store.getMaxPhyOffset());
    }

    private void awaitDispatched() throws InterruptedException {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (store.dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException(store.dispatchBehindBytes() + " bytes are not dispatched");
            }
            Thread.sleep(1);
        }
    }

    private PutMessageResult putOne(JSONObject spec) throws Exception {
        if (spec.containsKey("batch")) {
            return store.putMessages(Messages.batch(spec));
        }
        return Release.put(store, Messages.single(spec));
    }

    private Map<String, Object> put(JSONObject command) throws Exception {
        List<Object> results = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(command.getString("file")))) {
            PutMessageResult result = putOne(JSON.parseObject(line));
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("status", result.getPutMessageStatus().name());
            if (result.getAppendMessageResult() != null) {
                told.put("physical_offset", result.getAppendMessageResult().getWroteOffset());
                told.put("queue_offset", result.getAppendMessageResult().getLogicsOffset());
                told.put("message_id", result.getAppendMessageResult().getMsgId());
            }
            results.add(told);
        }
        return Map.of("results", results);
    }

    /** Puts until somebody kills this process; one line for each acknowledgement, with the line's number. */
    private Map<String, Object> stream(JSONObject command) throws Exception {
        int number = 0;
        for (String line : Files.readAllLines(Path.of(command.getString("file")))) {
            if (number >= command.getIntValue("window")) {
                System.in.read();  // a byte comes for each line that was read
            }
            PutMessageResult result = putOne(JSON.parseObject(line));
            answers.println("{\"acked\":" + number + ",\"status\":\"" + result.getPutMessageStatus() + "\"}");
            answers.flush();
            number++;
        }
        return Map.of("ended", true);
    }

    private Map<String, Object> read(JSONObject command) throws Exception {
        List<Object> queues = new ArrayList<>();
        try (BufferedWriter out = Files.newBufferedWriter(Path.of(command.getString("out")))) {
            Map<String, ? extends Map<Integer, ?>> table = store.getConsumeQueueTable();
            for (String topic : new TreeSet<>(table.keySet())) {
                for (int queueId : new TreeSet<>(table.get(topic).keySet())) {
                    long first = store.getMinOffsetInQueue(topic, queueId);
                    long end = store.getMaxOffsetInQueue(topic, queueId);
                    queues.add(List.of(topic, queueId, first, end));
                    readQueue(out, topic, queueId, first, end);
                }
            }
        }
        return Map.of("queues", queues);
    }

    private void readQueue(BufferedWriter out, String topic, int queueId, long first, long end) throws Exception {
        for (long offset = first; offset < end; ) {
            GetMessageResult result = store.getMessage("reader", topic, queueId, offset, BATCH, null);
            try {
                if (result.getMessageBufferList().isEmpty()) {
                    throw new IllegalStateException(topic + "/" + queueId + "@" + offset + ": " + result.getStatus());
                }
                for (ByteBuffer record : result.getMessageBufferList()) {
                    out.write(JSON.toJSONString(Messages.seen(record)));
                    out.newLine();
                }
                offset = result.getNextBeginOffset();
            } finally {
                result.release();
            }
        }
    }

    /** For each pair of topic and key the log offsets of what the index leads to. */
    private Map<String, Object> query(JSONObject command) throws Exception {
        int asked = 0;
        try (BufferedWriter out = Files.newBufferedWriter(Path.of(command.getString("out")))) {
            for (String line : Files.readAllLines(Path.of(command.getString("file")))) {
                JSONArray pair = JSON.parseArray(line);
                QueryMessageResult result = store.queryMessage(pair.getString(0), pair.getString(1), 64, 0, Long.MAX_VALUE);
                List<Long> offsets = new ArrayList<>();
                if (result != null) {
                    for (ByteBuffer record : result.getMessageBufferList()) {
                        offsets.add(record.slice().getLong(MessageDecoder.PHY_POS_POSITION));
                    }
                    result.release();
                }
                out.write(JSON.toJSONString(offsets));
                out.newLine();
                asked++;
            }
        }
        return Map.of("asked", asked);
    }

    private Map<String, Object> offsetsByTime(JSONObject command) {
        List<Long> offsets = new ArrayList<>();
        JSONArray times = command.getJSONArray("times");
        for (int at = 0; at < times.size(); at++) {
            offsets.add(store.getOffsetInQueueByTime(
                command.getString("topic"), command.getIntValue("queue_id"), times.getLongValue(at)));
        }
        return Map.of("offsets", offsets);
    }

    /** Properties as this release reads them, and as it writes what it read. */
    private Map<String, Object> properties(JSONObject command) {
        List<Object> read = new ArrayList<>();
        List<Object> written = new ArrayList<>();
        for (Object each : command.getJSONArray("texts")) {
            Map<String, String> pairs = MessageDecoder.string2messageProperties((String) each);
            read.add(pairs);
            written.add(MessageDecoder.messageProperties2String(pairs));
        }
        return Map.of("read", read, "written", written);
    }
}
