import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogSegmentMetadataSnapshot;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;

/** Writes a log of every kind of record of __remote_log_metadata to the file named by the first argument. */
class WriteRemoteLogMetadata {
    public static void main(String[] arguments) throws Exception {
        TopicIdPartition partition =
                new TopicIdPartition(Uuid.fromString("AAAAAAAAAAAAAAAAAAAAKg"), new TopicPartition("orders", 3));
        RemoteLogSegmentId segment = new RemoteLogSegmentId(partition, Uuid.fromString("AAAAAAAAAAAAAAAAAAAAKw"));
        Map<Integer, Long> epochs = new TreeMap<>(Map.of(0, 0L, 4, 17L));
        Optional<CustomMetadata> custom = Optional.of(new CustomMetadata(new byte[] {1, 2, 3}));
        RemoteLogSegmentMetadata copied = new RemoteLogSegmentMetadata(
                segment, 0, 99, 1_700_000_000_000L, 1, 1_700_000_000_500L, 4096, custom,
                RemoteLogSegmentState.COPY_SEGMENT_FINISHED, epochs, true);
        RemoteLogMetadata[] written = {
            new RemoteLogSegmentMetadata(segment, 0, 99, 1_700_000_000_000L, 1, 1_700_000_000_500L, 4096, epochs),
            copied,
            new RemoteLogSegmentMetadataUpdate(
                    segment, 1_700_000_001_000L, Optional.empty(), RemoteLogSegmentState.DELETE_SEGMENT_STARTED, 2),
            new RemoteLogSegmentMetadataUpdate(
                    segment, 1_700_000_001_001L, custom, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED, 2),
            new RemotePartitionDeleteMetadata(
                    partition, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, 1_700_000_002_000L, 3),
            RemoteLogSegmentMetadataSnapshot.create(copied),
        };
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        SimpleRecord[] records = new SimpleRecord[written.length];
        for (int at = 0; at < written.length; at++) {
            records[at] = new SimpleRecord(1_700_000_003_000L, null, serde.serialize(written[at]));
        }
        ByteBuffer log = MemoryRecords.withRecords(Compression.NONE, records).buffer();
        byte[] bytes = new byte[log.remaining()];
        log.get(bytes);
        Files.write(Path.of(arguments[0]), bytes);
    }
}
