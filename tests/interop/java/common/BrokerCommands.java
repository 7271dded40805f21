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
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** A whole broker without a name server, and a client of it that sends requests over loopback. */
public final class BrokerCommands implements Tool.Commands {
    private static final int SEND_MESSAGE = 10;
    private static final int PULL_MESSAGE = 11;
    private static final int QUERY_MESSAGE = 12;
    private static final int SUCCESS = 0;
    private static final int PULL_NOT_FOUND = 19;
    private static final int WITH_SUBSCRIPTION = 4;
    private static final int BATCH = 32;
    private static final long TIMEOUT_MS = 10_000;
    private final PrintStream answers;
    private BrokerController broker;
    private NettyRemotingClient client;
    private String address;

    public BrokerCommands(PrintStream answers) {
        this.answers = answers;
    }

    @Override
    public Map<String, Object> obey(JSONObject command) throws Exception {
        switch (command.getString("op")) {
            case "open":
                return open(command);
            case "stream":
                return stream(command);
            case "read":
                return read(command);
            case "query":
                return query(command);
            case "close":
                client.shutdown();
                broker.shutdown();
                return Map.of();
            default:
                throw new IllegalArgumentException(command.toJSONString());
        }
    }

    private Map<String, Object> open(JSONObject command) throws Exception {
        BrokerConfig brokerConfig = configured(command, new BrokerConfig());
        NettyServerConfig serverConfig = configured(command, new NettyServerConfig());
        MessageStoreConfig storeConfig = configured(command, new MessageStoreConfig());
        broker = new BrokerController(brokerConfig, serverConfig, new NettyClientConfig(), storeConfig);
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not initialize");
        }
        broker.start();
        client = new NettyRemotingClient(new NettyClientConfig());
        client.start();
        address = "127.0.0.1:" + serverConfig.getListenPort();
        return Map.of();
    }

    /** Every key of the configuration that this part of it has. */
    private static <T> T configured(JSONObject command, T config) {
        Properties wanted = new Properties();
        command.getJSONObject("config").forEach((name, value) -> wanted.setProperty(name, String.valueOf(value)));
        MixAll.properties2Object(wanted, config);
        return config;
    }

    private RemotingCommand invoke(int code, byte[] body, String... fields) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        HashMap<String, String> named = new HashMap<>();
        for (int at = 0; at < fields.length; at += 2) {
            named.put(fields[at], fields[at + 1]);
        }
        request.setExtFields(named);
        request.setBody(body);
        return client.invokeSync(address, request, TIMEOUT_MS);
    }

    /** Sends one after the other; one line for each acknowledgement, with the request's number. */
    private Map<String, Object> stream(JSONObject command) throws Exception {
        int number = 0;
        for (String line : Files.readAllLines(Path.of(command.getString("file")))) {
            if (number >= command.getIntValue("window")) {
                System.in.read();  // a byte comes for each line that was read
            }
            JSONObject spec = JSON.parseObject(line);
            boolean isBatch = spec.containsKey("batch");
            MessageExt message = isBatch ? Messages.batch(spec) : Messages.single(spec);
            RemotingCommand answer = invoke(
                SEND_MESSAGE, message.getBody(),
                "producerGroup", "producers",
                "topic", message.getTopic(),
                "defaultTopic", "TBW102",
                "defaultTopicQueueNums", "4",
                "queueId", String.valueOf(message.getQueueId()),
                "sysFlag", String.valueOf(message.getSysFlag()),
                "bornTimestamp", String.valueOf(message.getBornTimestamp()),
                "flag", String.valueOf(message.getFlag()),
                "properties", isBatch ? "" : MessageDecoder.messageProperties2String(message.getProperties()),
                "reconsumeTimes", "0",
                "unitMode", "false",
                "batch", String.valueOf(isBatch));
            if (answer.getCode() != SUCCESS) {
                throw new IllegalStateException(number + ": " + answer.getCode() + " " + answer.getRemark());
            }
            answers.println("{\"acked\":" + number + "}");
            answers.flush();
            number++;
        }
        return Map.of("ended", true);
    }

    private Map<String, Object> read(JSONObject command) throws Exception {
        int count = 0;
        try (BufferedWriter out = Files.newBufferedWriter(Path.of(command.getString("out")))) {
            for (String line : Files.readAllLines(Path.of(command.getString("file")))) {
                JSONArray queue = JSON.parseArray(line);
                for (long offset = 0; ; ) {
                    RemotingCommand answer = pull(queue.getString(0), queue.getIntValue(1), offset);
                    if (answer.getCode() == PULL_NOT_FOUND) {
                        break;
                    }
                    if (answer.getCode() != SUCCESS) {
                        throw new IllegalStateException(line + "@" + offset + ": " + answer.getCode() + answer.getRemark());
                    }
                    for (ByteBuffer record : records(answer.getBody())) {
                        out.write(JSON.toJSONString(Messages.seen(record)));
                        out.newLine();
                        count++;
                    }
                    offset = Long.parseLong(answer.getExtFields().get("nextBeginOffset"));
                }
            }
        }
        return Map.of("count", count);
    }

    private RemotingCommand pull(String topic, int queueId, long offset) throws Exception {
        return invoke(
            PULL_MESSAGE, null,
            "consumerGroup", "readers",
            "topic", topic,
            "queueId", String.valueOf(queueId),
            "queueOffset", String.valueOf(offset),
            "maxMsgNums", String.valueOf(BATCH),
            "sysFlag", String.valueOf(WITH_SUBSCRIPTION),
            "commitOffset", "0",
            "suspendTimeoutMillis", "0",
            "subscription", "*",
            "subVersion", "0",
            "expressionType", "TAG");
    }

    private Map<String, Object> query(JSONObject command) throws Exception {
        int asked = 0;
        try (BufferedWriter out = Files.newBufferedWriter(Path.of(command.getString("out")))) {
            for (String line : Files.readAllLines(Path.of(command.getString("file")))) {
                JSONArray pair = JSON.parseArray(line);
                RemotingCommand answer = invoke(
                    QUERY_MESSAGE, null,
                    "topic", pair.getString(0),
                    "key", pair.getString(1),
                    "maxNum", "64",
                    "beginTimestamp", "0",
                    "endTimestamp", String.valueOf(Long.MAX_VALUE));
                List<Long> offsets = new ArrayList<>();
                if (answer.getCode() == SUCCESS) {
                    for (ByteBuffer record : records(answer.getBody())) {
                        offsets.add(record.getLong(MessageDecoder.PHY_POS_POSITION));
                    }
                }
                out.write(JSON.toJSONString(offsets));
                out.newLine();
                asked++;
            }
        }
        return Map.of("asked", asked);
    }

    private static List<ByteBuffer> records(byte[] body) {
        List<ByteBuffer> found = new ArrayList<>();
        for (int at = 0; at < body.length; ) {
            int size = ByteBuffer.wrap(body).getInt(at);
            found.add(ByteBuffer.wrap(body, at, size).slice());
            at += size;
        }
        return found;
    }
}
