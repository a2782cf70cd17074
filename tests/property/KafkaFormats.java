import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import kafka.common.LongRef;
import kafka.log.AppendOrigin;
import kafka.log.LogValidator$;
import kafka.message.CompressionCodec;
import kafka.message.CompressionCodec$;
import kafka.server.BrokerTopicStats;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Time;

/**
 * Converts between message formats as Apache Kafka 2.8's broker does.
 *
 * <p>Reads lines "down magic firstOffset hex" and "up codec timestampType now hex" (codec -1: the producer's); answers each with
 * the converted records in hex, or with "! " and the name of the exception.
 */
class KafkaFormats {
    private static final BrokerTopicStats STATS = new BrokerTopicStats();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            String answer;
            try {
                MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(words[words.length - 1])));
                answer = HexFormat.of().formatHex(bytes(words[0].equals("down") ? down(words, records) : up(words, records)));
            } catch (Exception refused) {
                answer = "! " + refused.getClass().getSimpleName();
            }
            System.out.println(answer);
        }
    }

    private static MemoryRecords down(String[] words, MemoryRecords records) {
        return records.downConvert(Byte.parseByte(words[1]), Long.parseLong(words[2]), Time.SYSTEM).records();
    }

    private static MemoryRecords up(String[] words, MemoryRecords records) {
        int source = 0;
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            if (batch.compressionType().id != 0) {
                source = batch.compressionType().id;
            }
        }
        int target = Integer.parseInt(words[1]);
        CompressionCodec sourceCodec = CompressionCodec$.MODULE$.getCompressionCodec(source);
        CompressionCodec targetCodec = CompressionCodec$.MODULE$.getCompressionCodec(target < 0 ? source : target);
        return LogValidator$.MODULE$.validateMessagesAndAssignOffsets(
            records, new TopicPartition("t", 0), new LongRef(0), Time.SYSTEM, Long.parseLong(words[3]), sourceCodec, targetCodec,
            false, (byte) 2, TimestampType.forName(words[2]), Long.MAX_VALUE, -1, AppendOrigin.Client$.MODULE$,
            kafka.api.ApiVersion$.MODULE$.latestVersion(), STATS).validatedRecords();
    }

    private static byte[] bytes(MemoryRecords records) {
        ByteBuffer buffer = records.buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }
}
