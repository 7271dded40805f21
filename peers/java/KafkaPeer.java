package towline.peers;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own clients as they come, acks=all; its producer makes batches itself. `address` is host:port. */
public final class KafkaPeer implements Peer {
    /** Where single messages are timed, waiting for more to send with them is only delay. */
    private static final Set<String> AT_ONCE = Set.of("single", "rate", "tail", "first");
    private static final int ADMIN_MS = 110_000;
    private static final Map<String, Object> QUICK_AGAIN = Map.of(
        "reconnect.backoff.ms", "1", "reconnect.backoff.max.ms", "5",
        "retry.backoff.ms", "1", "retry.backoff.max.ms", "5");
    private String address;
    private KafkaProducer<byte[], byte[]> producer;

    @Override
    public void connect(String address, Work work) {
        this.address = address;
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", address, "acks", "all"));
        if (AT_ONCE.contains(work.kind())) {
            config.put("linger.ms", 0);
        }
        if (work.kind().equals("first")) {
            config.putAll(QUICK_AGAIN);
        }
        producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    @Override
    public void makeTopic(String topic, int queues) throws Exception {
        try (Admin admin = Admin.create(patient())) {
            admin.createTopics(List.of(new NewTopic(topic, queues, (short) 1))).all().get();
        } catch (ExecutionException met) {
            if (!(met.getCause() instanceof TopicExistsException)) {
                throw met;
            }
        }
        while (producer.partitionsFor(topic).stream().filter(each -> each.leader() != null).count() < queues) {
            Thread.sleep(1);
        }
        await(topic, queues);
    }

    /**
     * Until the broker serves each partition, and not only knows of it: of two batches that come before, it may refuse the
     * first and take the second, and then the first is out of order for ever.
     */
    private void await(String topic, int queues) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        for (int queue = 0; queue < queues; queue++) {
            asked.put(new TopicPartition(topic, queue), OffsetSpec.latest());
        }
        try (Admin admin = Admin.create(patient())) {
            admin.listOffsets(asked).all().get(); // it asks again where a partition is not served yet
        }
    }

    private Map<String, Object> patient() {
        return Map.of("bootstrap.servers", address, "default.api.timeout.ms", ADMIN_MS, "request.timeout.ms", ADMIN_MS);
    }

    @Override
    public boolean takesBatches() {
        return false;
    }

    @Override
    public void send(String topic, int queue, byte[][] bodies, Outcome outcome) {
        producer.send(new ProducerRecord<>(topic, queue, null, bodies[0]), (metadata, trouble) -> {
            if (trouble == null) {
                outcome.acknowledged();
            } else {
                outcome.failed(trouble);
            }
        });
    }

    @Override
    public void put(String topic, int queue, byte[][] bodies) throws Exception {
        List<Future<?>> sent = new ArrayList<>(bodies.length);
        for (byte[] body : bodies) {
            sent.add(producer.send(new ProducerRecord<>(topic, queue, null, body)));
        }
        for (Future<?> each : sent) {
            each.get();
        }
    }

    @Override
    public Reader reader(String topic, int queues, boolean fromTheEnd) {
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
            Map.of("bootstrap.servers", address), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        List<TopicPartition> partitions = new ArrayList<>();
        for (int queue = 0; queue < queues; queue++) {
            partitions.add(new TopicPartition(topic, queue));
        }
        consumer.assign(partitions);
        if (fromTheEnd) {
            consumer.seekToEnd(partitions);
        } else {
            consumer.seekToBeginning(partitions);
        }
        partitions.forEach(consumer::position); // asked for now, not at the first read
        return new Reader() {
            @Override
            public int read(long withinMs, Consumer<byte[]> each) {
                ConsumerRecords<byte[], byte[]> found = consumer.poll(Duration.ofMillis(withinMs));
                for (ConsumerRecord<byte[], byte[]> record : found) {
                    each.accept(record.value());
                }
                return found.count();
            }

            @Override
            public void close() {
                consumer.close();
            }
        };
    }

    @Override
    public void close() {
        if (producer != null) {
            producer.close(Duration.ZERO);
            producer = null;
        }
    }
}
