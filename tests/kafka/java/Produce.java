package towline.kafka;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Records of every compression, and transactions of which one is aborted and one stays open. */
public final class Produce {
    private static final int COUNT = 40;
    private static final long TIME = 1_700_000_000_000L;
    private static final String[] COMPRESSIONS = {"none", "gzip", "snappy", "lz4", "zstd"};

    public static void main(String[] words) throws Exception {
        String address = words[0];
        int number = 0;
        for (String compression : COMPRESSIONS) {
            try (KafkaProducer<byte[], byte[]> producer = producer(address, compression, null, true)) {
                for (int i = 0; i < COUNT; i++) {
                    producer.send(record(words[1], number++));
                }
            }
            try (KafkaProducer<byte[], byte[]> producer = producer(address, compression, null, false)) {
                for (int i = 0; i < COUNT; i++) {
                    producer.send(record(words[1], number++)).get();
                }
            }
        }
        transactions(address, words[2]);
    }

    private static void transactions(String address, String topic) throws Exception {
        KafkaProducer<byte[], byte[]> open = producer(address, "lz4", "open", true);
        open.initTransactions();
        try (KafkaProducer<byte[], byte[]> producer = producer(address, "zstd", "ends", true)) {
            producer.initTransactions();
            for (int turn = 0; turn < 6; turn++) {
                producer.beginTransaction();
                for (int i = 0; i < 3; i++) {
                    producer.send(record(topic, 10 * turn + i)).get();
                }
                if (turn % 3 == 1) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
                if (turn == 3) {
                    open.beginTransaction();
                    open.send(record(topic, 1000)).get();
                }
            }
        }
        open.flush();
        Runtime.getRuntime().halt(0); // without the end of the open transaction
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, int number) {
        byte[] key = number % 7 == 0 ? null : bytes("key " + number);
        byte[] value = number % 11 == 0 ? null : bytes(("value " + number + " ").repeat(number % 50));
        List<Header> headers = List.of();
        if (number % 5 == 0) {
            headers = List.of(new RecordHeader("source", bytes("test")), new RecordHeader("null", (byte[]) null));
        }
        return new ProducerRecord<>(topic, 0, TIME + number, key, value, headers);
    }

    private static KafkaProducer<byte[], byte[]> producer(
            String address, String compression, String transaction, boolean idempotent) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", address);
        properties.put("compression.type", compression);
        properties.put("linger.ms", idempotent ? 50 : 0);
        properties.put("batch.size", 2000);
        properties.put("enable.idempotence", idempotent);
        if (transaction != null) {
            properties.put("transactional.id", transaction);
        }
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
