package towline.kafka;

import java.io.File;
import java.io.FileWriter;
import java.lang.reflect.Constructor;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.server.NIOServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/**
 * A broker before KRaft with its ZooKeeper and a producer, all in one JVM: it fills topics, says so, and stops cleanly
 * when its input ends. Words: a directory, two free ports, records for each topic, then topics as name;compression;config.
 */
public final class OldBroker {
    private static final long TIME = 1_700_000_000_000L;
    private static final long CLEAN_NS = 60_000_000_000L;
    private static final String BYTES = "org.apache.kafka.common.serialization.ByteArraySerializer";
    private static final Constructor<?> TIMED = timed();

    public static void main(String[] words) {
        try {
            run(words);
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static void run(String[] words) throws Exception {
        Path directory = Path.of(words[0]);
        int port = Integer.parseInt(words[2]);
        String keeper = "127.0.0.1:" + words[1];
        File kept = directory.resolve("zookeeper").toFile();
        NIOServerCnxnFactory doors = new NIOServerCnxnFactory();
        doors.configure(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[1])), 60);
        doors.startup(new ZooKeeperServer(kept, kept, 2000));
        String config = config(directory, keeper, port);
        Thread broker = new Thread(() -> serve(config));
        broker.setDaemon(true);
        broker.start();
        int count = Integer.parseInt(words[3]);
        List<String[]> topics = new ArrayList<>();
        for (int i = 4; i < words.length; i++) {
            topics.add(words[i].split(";", 3));
        }
        ZooKeeper client = new ZooKeeper(keeper, 30_000, event -> {});
        while (client.exists("/brokers/ids/0", false) == null) {
            Thread.sleep(20);
        }
        for (String[] topic : topics) {
            put(client, "/config/topics/" + topic[0], "{\"version\":1,\"config\":" + topic[2] + "}");
            put(client, "/brokers/topics/" + topic[0], "{\"version\":1,\"partitions\":{\"0\":[0]}}");
        }
        client.close();
        for (String[] topic : topics) {
            fill(port, topic[0], topic[1], count);
        }
        long deadline = System.nanoTime() + CLEAN_NS;
        for (String[] topic : topics) {
            while (topic[2].contains("compact") && !isCompacted(directory.resolve("data"), topic[0])) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(topic[0] + " is not compacted");
                }
                Thread.sleep(20);
            }
        }
        System.out.println("filled");
        while (System.in.read() >= 0) {}
        System.exit(0); // the broker's hook stops it cleanly
    }

    private static void fill(int port, String topic, String compression, int count) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", "127.0.0.1:" + port);
        properties.put("compression.type", compression);
        properties.put("key.serializer", BYTES);
        properties.put("value.serializer", BYTES);
        properties.put("linger.ms", "1");
        properties.put("batch.size", "2000");
        properties.put("retries", "100");
        properties.put("max.in.flight.requests.per.connection", "1");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties)) {
            Future<?> last = null;
            for (int i = 0; i < count; i++) {
                last = producer.send(record(topic, i));
                if (i % 20 == 19) {
                    last.get(); // else all are in few batches
                }
            }
        }
    }

    @SuppressWarnings("unchecked")
    private static ProducerRecord<byte[], byte[]> record(String topic, int i) throws Exception {
        boolean compacted = topic.contains("compacted");
        byte[] key = compacted ? bytes("key " + i * i % 97) : i % 7 == 0 ? null : bytes("key " + i);
        StringBuilder text = new StringBuilder("value");
        for (long j = 0; j < i % 20; j++) {
            text.append(' ').append((i * 2654435761L + j * 40503L) % 4294967296L);
        }
        byte[] value = i % 11 == 0 && !compacted ? null : bytes(text.toString());
        if (TIMED == null) {
            return new ProducerRecord<>(topic, 0, key, value);
        }
        return (ProducerRecord<byte[], byte[]>) TIMED.newInstance(topic, 0, TIME + i, key, value);
    }

    /** From 0.10 on a record has a time. */
    private static Constructor<?> timed() {
        try {
            return ProducerRecord.class.getConstructor(
                    String.class, Integer.class, Long.class, Object.class, Object.class);
        } catch (NoSuchMethodException error) {
            return null;
        }
    }

    /** Up to the segment that is written: a stop in the middle of it would leave files that only a start removes. */
    private static boolean isCompacted(Path data, String topic) throws Exception {
        Path checkpoint = data.resolve("cleaner-offset-checkpoint");
        long active = 0;
        for (String name : data.resolve(topic + "-0").toFile().list()) {
            if (name.endsWith(".swap") || name.endsWith(".cleaned")) {
                return false;
            }
            active = name.endsWith(".log") ? Math.max(active, Long.parseLong(name.substring(0, 20))) : active;
        }
        return Files.exists(checkpoint) && Files.readString(checkpoint).contains(topic + " 0 " + active + "\n");
    }

    private static void put(ZooKeeper client, String path, String text) throws Exception {
        client.create(path, bytes(text), ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
    }

    private static void serve(String config) {
        try {
            kafka.Kafka.main(new String[] {config});
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static String config(Path directory, String keeper, int port) throws Exception {
        String config = directory.resolve("server.properties").toString();
        try (FileWriter writer = new FileWriter(config)) {
            writer.write("broker.id=0\nhost.name=127.0.0.1\nport=" + port + "\nlisteners=PLAINTEXT://127.0.0.1:" + port
                    + "\nlog.dirs=" + directory.resolve("data") + "\nzookeeper.connect=" + keeper
                    + "\nlog.cleaner.enable=true\nlog.cleaner.backoff.ms=100\nlog.cleaner.dedupe.buffer.size=4194304"
                    + "\nlog.retention.hours=1000000\noffsets.topic.num.partitions=1"
                    + "\noffsets.topic.replication.factor=1\n");
        }
        return config;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
