import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A producer and a consumer for the API of Kafka 0.9.  Each line of the input is a command; "." follows its output.
 *
 * <p>"produce BOOTSTRAP TOPIC CODEC COUNT" prints the offset of each record; "consume BOOTSTRAP TOPIC COUNT FETCH_BYTES" prints
 * "offset key value" of each.  What goes wrong is "! " and the name of the exception.
 */
class OldClient {
    public static void main(String[] none) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String command = commands.readLine(); command != null; command = commands.readLine()) {
            run(command.split(" "));
            System.out.println(".");
        }
    }

    private static void run(String[] arguments) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[1]);
        try {
            if (arguments[0].equals("produce")) {
                produce(settings, arguments[2], arguments[3], Integer.parseInt(arguments[4]));
            } else {
                consume(settings, arguments[2], Integer.parseInt(arguments[3]), Integer.parseInt(arguments[4]));
            }
        } catch (Exception refused) {
            System.out.println("! " + refused.getClass().getSimpleName());
        }
    }

    private static void produce(Map<String, Object> settings, String topic, String codec, int count) throws Exception {
        settings.put("compression.type", codec);
        settings.put("linger.ms", 100);
        settings.put("batch.size", 4000);
        settings.put("acks", "all");
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            Future<?>[] sent = new Future<?>[count];
            for (int i = 0; i < count; i++) {
                sent[i] = producer.send(new ProducerRecord<>(topic, 0, bytes("key " + i), bytes("value " + i)));
            }
            for (Future<?> one : sent) {
                System.out.println(((RecordMetadata) one.get()).offset());
            }
        }
    }

    private static void consume(Map<String, Object> settings, String topic, int count, int fetchBytes) {
        settings.put("max.partition.fetch.bytes", fetchBytes);
        settings.put("enable.auto.commit", "false");
        settings.put("check.crcs", "true");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(Collections.singletonList(partition));
            consumer.seek(partition, 0);
            long deadline = System.currentTimeMillis() + 30_000;
            while (count > 0 && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(500)) {
                    System.out.println(record.offset() + " " + text(record.key()) + " " + text(record.value()));
                    count--;
                }
            }
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : new String(bytes, StandardCharsets.UTF_8).replace(' ', '_');
    }
}
