import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of consumer groups, a thread each: "BOOTSTRAP TOPIC SESSION_TIMEOUT_MS", then on stdin "join GROUP NAME ASSIGNOR [static]"
 * and "leave GROUP NAME".  The assignor "Consumer" is the consumer protocol, without an assignor of the client.
 *
 * <p>It prints "NANOS GROUP NAME EVENT ...": "owns GENERATION PARTITION...", "from PARTITION OFFSET" (where it begins; NANOS is from
 * before it asked), "read PARTITION FIRST LAST", "committed PARTITION OFFSET", "left". NANOS is of the same clock in all processes.
 */
class Members {
    private static final Map<String, Member> members = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            String key = words[1] + " " + words[2];
            if (words[0].equals("leave")) {
                members.remove(key).isOver = true;
                continue;
            }
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", arguments[0]);
            settings.put("group.id", words[1]);
            settings.put("client.id", words[2]);
            if (words[3].equals("Consumer")) {
                settings.put("group.protocol", "consumer");
            } else {
                settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + words[3] + "Assignor");
                settings.put("session.timeout.ms", arguments[2]);
                settings.put("heartbeat.interval.ms", "300");
            }
            settings.put("enable.auto.commit", "false");
            settings.put("auto.offset.reset", "earliest");
            settings.put("max.poll.records", "10");
            if (words.length > 4) {
                settings.put("group.instance.id", words[2]);
            }
            Member member = new Member(key, arguments[1], settings);
            members.put(key, member);
            member.start();
        }
    }

    private static class Member extends Thread implements ConsumerRebalanceListener {
        volatile boolean isOver;
        private final String topic;
        private final KafkaConsumer<byte[], byte[]> consumer;
        private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
        private String seen = "";

        Member(String name, String topic, Map<String, Object> settings) {
            super(name);
            this.topic = topic;
            consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        @Override
        public void run() {
            consumer.subscribe(Collections.singletonList(topic), this);
            while (!isOver) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(50));
                tellWhatItOwns();
                for (TopicPartition partition : records.partitions()) {
                    List<ConsumerRecord<byte[], byte[]>> some = records.records(partition);
                    long last = some.get(some.size() - 1).offset();
                    tell(System.nanoTime(), "read " + partition.partition() + " " + some.get(0).offset() + " " + last);
                    uncommitted.put(partition, new OffsetAndMetadata(last + 1));
                }
                commit();
            }
            consumer.close();
            tell(System.nanoTime(), "left");
        }

        private void commit() {
            if (uncommitted.isEmpty()) {
                return;
            }
            try {
                consumer.commitSync(uncommitted);
                long now = System.nanoTime();
                uncommitted.forEach(
                        (partition, offset) -> tell(now, "committed " + partition.partition() + " " + offset.offset()));
                uncommitted.clear();
            } catch (CommitFailedException | RebalanceInProgressException later) {
                // After the rebalance it is tried again for what is still this member's.
            }
        }

        private void tellWhatItOwns() {
            Set<Integer> owned = new TreeSet<>();
            consumer.assignment().forEach(partition -> owned.add(partition.partition()));
            StringBuilder now = new StringBuilder("owns " + consumer.groupMetadata().generationId());
            owned.forEach(partition -> now.append(" ").append(partition));
            if (!now.toString().equals(seen)) {
                seen = now.toString();
                tell(System.nanoTime(), seen);
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            for (TopicPartition partition : partitions) {
                long asked = System.nanoTime();
                tell(asked, "from " + partition.partition() + " " + consumer.position(partition));
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            uncommitted.keySet().removeAll(partitions);
        }

        private void tell(long nanos, String event) {
            synchronized (Members.class) {
                System.out.println(nanos + " " + getName() + " " + event);
                System.out.flush();
            }
        }
    }
}
