package towline.interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.subscription.SubscriptionGroupManager;

/** The managers of a broker that keep the offsets and the settings of consumer groups, without the broker. */
public final class BrokerGroups implements Tool.Commands {
    public BrokerGroups(PrintStream answers) {
    }

    @Override
    public Map<String, Object> obey(JSONObject command) throws Exception {
        switch (command.getString("op")) {
            case "read_offsets":
                return Map.of("found", plain(offsets(read(command)).getOffsetTable()));
            case "write_offsets":
                write(command, offsets(command.getString("content")).encode(true));
                return Map.of();
            case "read_groups":
                return Map.of("found", plain(groups(read(command)).getSubscriptionGroupTable()));
            case "write_groups":
                write(command, groups(command.getString("content")).encode(true));
                return Map.of();
            default:
                throw new IllegalArgumentException(command.getString("op"));
        }
    }

    private static ConsumerOffsetManager offsets(String text) {
        ConsumerOffsetManager manager = new ConsumerOffsetManager();
        manager.decode(text);
        return manager;
    }

    private static SubscriptionGroupManager groups(String text) {
        SubscriptionGroupManager manager = new SubscriptionGroupManager();
        manager.decode(text);
        return manager;
    }

    /** With quotes around every key, as any reader of JSON wants them. */
    private static Object plain(Map<?, ?> table) {
        Map<String, Object> found = new TreeMap<>();
        table.forEach((key, value) -> found.put(
            key.toString(),
            JSON.parse(JSON.toJSONString(value, SerializerFeature.WriteNonStringKeyAsString))));
        return found;
    }

    private static String read(JSONObject command) throws Exception {
        return new String(Files.readAllBytes(Path.of(command.getString("from"))), StandardCharsets.UTF_8);
    }

    private static void write(JSONObject command, String text) throws Exception {
        Files.write(Path.of(command.getString("to")), text.getBytes(StandardCharsets.UTF_8));
    }
}
