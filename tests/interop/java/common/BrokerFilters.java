package towline.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedWriter;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.broker.filter.CommitLogDispatcherCalcBitMap;
import org.apache.rocketmq.broker.filter.ConsumerFilterData;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.util.BitsArray;
import org.apache.rocketmq.filter.util.BloomFilter;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.MessageFilter;

/** A broker's filters: SQL92 expressions, tags, bitmaps, and the files of subscriptions and of extended entries. */
public final class BrokerFilters implements Tool.Commands {
    private static final String SQL = "SQL92";

    public BrokerFilters(PrintStream answers) {
    }

    @Override
    public Map<String, Object> obey(JSONObject command) throws Exception {
        switch (command.getString("op")) {
            case "evaluate":
                return eachLine(command, line -> evaluate(JSON.parseArray(line)));
            case "tags":
                return eachLine(command, line -> tags((String) JSON.parse(line)));
            case "bits":
                return eachLine(command, line -> bits(JSON.parseArray(line)));
            case "write_subscriptions":
                return writeSubscriptions(command);
            case "read_subscriptions":
                return readSubscriptions(command);
            case "calculate_bitmaps":
                return calculateBitmaps(command);
            case "write_units":
                return writeUnits(command);
            case "read_units":
                return readUnits(command);
            default:
                throw new IllegalArgumentException(command.toJSONString());
        }
    }

    private interface Answer {
        Object to(String line) throws Exception;
    }

    private static Map<String, Object> eachLine(JSONObject command, Answer answer) throws Exception {
        int asked = 0;
        try (BufferedWriter out = Files.newBufferedWriter(Path.of(command.getString("out")))) {
            for (String line : Files.readAllLines(Path.of(command.getString("file")))) {
                out.write(JSON.toJSONString(answer.to(line)));
                out.newLine();
                asked++;
            }
        }
        return Map.of("asked", asked);
    }

    /** An expression and the properties of messages: null if it is refused, else "true", "false", "null" or "failed". */
    private static Object evaluate(JSONArray asked) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get(SQL).compile(asked.getString(0));
        } catch (MQFilterException refused) {
            return null;
        }
        List<String> answers = new ArrayList<>();
        for (Object each : asked.getJSONArray(1)) {
            Map<String, String> properties = new HashMap<>();
            ((JSONObject) each).forEach((name, value) -> properties.put(name, (String) value));
            try {
                answers.add(String.valueOf(expression.evaluate(new MessageEvaluationContext(properties))));
            } catch (Exception failed) {
                answers.add("failed");
            }
        }
        return answers;
    }

    private static Object tags(String text) {
        try {
            return Release.tags(text);
        } catch (Exception refused) {
            return null;
        }
    }

    /** From percent, number, group and topic: k, m, positions, and the bitmap with them. */
    private static Object bits(JSONArray asked) {
        BloomFilter filter = BloomFilter.createByFn(asked.getIntValue(0), asked.getIntValue(1));
        String key = asked.getString(2) + "#" + asked.getString(3);
        BitsArray bits = BitsArray.create(filter.getM());
        filter.hashTo(key, bits);
        List<Integer> bytes = new ArrayList<>();
        for (byte each : bits.bytes()) {
            bytes.add(each & 0xff);
        }
        return List.of(filter.getK(), filter.getM(), filter.calcBitPositions(key), bytes);
    }

    /** Registers topic, group, expression and version of each line, and writes what a broker persists. */
    private static Map<String, Object> writeSubscriptions(JSONObject command) throws Exception {
        ConsumerFilterManager manager = new ConsumerFilterManager();
        List<Boolean> registered = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(command.getString("file")))) {
            JSONArray asked = JSON.parseArray(line);
            registered.add(manager.register(
                asked.getString(0), asked.getString(1), asked.getString(2), SQL, asked.getLongValue(3)));
        }
        Files.writeString(Path.of(command.getString("to")), manager.encode(true), StandardCharsets.UTF_8);
        return Map.of("registered", registered);
    }

    /** The subscriptions that a broker finds in a file. */
    private static Map<String, Object> readSubscriptions(JSONObject command) throws Exception {
        ConsumerFilterManager manager = new ConsumerFilterManager();
        manager.decode(Files.readString(Path.of(command.getString("from"))));
        List<Object> found = new ArrayList<>();
        for (String topic : new TreeMap<>(manager.getFilterDataByTopic()).keySet()) {
            Map<String, ConsumerFilterData> groups =
                new TreeMap<>(manager.getFilterDataByTopic().get(topic).getGroupFilterData());
            for (ConsumerFilterData data : groups.values()) {
                found.add(List.of(
                    data.getTopic(), data.getConsumerGroup(), data.getExpression(), data.getExpressionType(),
                    data.getBornTime(), data.getDeadTime(), data.getClientVersion(),
                    data.getBloomFilterData().getBitPos(), data.getBloomFilterData().getBitNum(),
                    data.getCompiledExpression() != null));
            }
        }
        return Map.of("found", found);
    }

    /**
     * From properties and store time of each line: the bitmap that is calculated at dispatch for the subscriptions of a
     * file, and by group whether a pull then takes the queue's entry for one that may match.
     */
    private static Map<String, Object> calculateBitmaps(JSONObject command) throws Exception {
        ConsumerFilterManager manager = new ConsumerFilterManager();
        manager.decode(Files.readString(Path.of(command.getString("from"))));
        String topic = command.getString("topic");
        BrokerConfig config = new BrokerConfig();
        config.setEnableCalcFilterBitMap(true);
        CommitLogDispatcherCalcBitMap dispatcher = new CommitLogDispatcherCalcBitMap(config, manager);
        Map<String, MessageFilter> pulls = new TreeMap<>();
        for (ConsumerFilterData data : manager.get(topic)) {
            pulls.put(data.getConsumerGroup(), BrokerRelease.pulled(data, manager));
        }
        return eachLine(command, line -> {
            JSONArray asked = JSON.parseArray(line);
            Map<String, String> properties = new HashMap<>();
            asked.getJSONObject(0).forEach((name, value) -> properties.put(name, (String) value));
            long stored = asked.getLongValue(1);
            DispatchRequest request =
                new DispatchRequest(topic, 0, 0L, 100, 7L, stored, 0L, "", null, 0, 0L, properties);
            dispatcher.dispatch(request);
            List<Integer> bitmap = new ArrayList<>();
            for (byte each : request.getBitMap()) {
                bitmap.add(each & 0xff);
            }
            ConsumeQueueExt.CqExtUnit unit = new ConsumeQueueExt.CqExtUnit(7L, stored, request.getBitMap());
            Map<String, Boolean> taken = new TreeMap<>();
            for (Map.Entry<String, MessageFilter> each : pulls.entrySet()) {
                taken.put(each.getKey(), each.getValue().isMatchedByConsumeQueue(7L, unit));
            }
            return List.of(bitmap, taken);
        });
    }

    private static ConsumeQueueExt units(JSONObject command) {
        ConsumeQueueExt queue = new ConsumeQueueExt("T", 0, command.getString("root"), command.getIntValue("size"), 112);
        if (!queue.load()) {
            throw new IllegalStateException("it does not load");
        }
        queue.recover();
        return queue;
    }

    /** Appends tags code, time and bitmap of each line; the addresses that it gives. */
    private static Map<String, Object> writeUnits(JSONObject command) throws Exception {
        ConsumeQueueExt queue = units(command);
        List<Long> addresses = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(command.getString("file")))) {
            JSONArray asked = JSON.parseArray(line);
            byte[] bitmap = asked.getJSONArray(2).isEmpty() ? null : new byte[asked.getJSONArray(2).size()];
            for (int at = 0; bitmap != null && at < bitmap.length; at++) {
                bitmap[at] = (byte) asked.getJSONArray(2).getIntValue(at);
            }
            addresses.add(queue.put(
                new ConsumeQueueExt.CqExtUnit(asked.getLong(0), asked.getLongValue(1), bitmap)));
        }
        queue.flush(0);
        return Map.of("addresses", addresses, "end", queue.getMaxAddress());
    }

    /** What stands at the addresses of the lines: tags code, time and bitmap, or null. */
    private static Map<String, Object> readUnits(JSONObject command) throws Exception {
        ConsumeQueueExt queue = units(command);
        return eachLine(command, line -> {
            ConsumeQueueExt.CqExtUnit unit = queue.get((Long) JSON.parseObject(line, Long.class));
            if (unit == null) {
                return null;
            }
            List<Integer> bitmap = new ArrayList<>();
            for (byte each : unit.getFilterBitMap() == null ? new byte[0] : unit.getFilterBitMap()) {
                bitmap.add(each & 0xff);
            }
            return List.of(unit.getTagsCode(), unit.getMsgStoreTime(), bitmap);
        });
    }
}
