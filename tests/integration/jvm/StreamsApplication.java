import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts the words of a topic: "BOOTSTRAP APPLICATION_ID INPUT OUTPUT THREADS STATE_FOLDER [PROPERTY=VALUE...]", until stdin ends.
 *
 * <p>Each record is a line; each word of it is sent to a repartition topic and counted in memory with a changelog, exactly once.  It
 * prints the states of the application.
 */
class StreamsApplication {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.putAll(
                Map.of(
                        StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0],
                        StreamsConfig.APPLICATION_ID_CONFIG, arguments[1],
                        StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[4],
                        StreamsConfig.STATE_DIR_CONFIG, arguments[5],
                        StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams",
                        StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
                        StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0",
                        StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100",
                        StreamsConfig.REPLICATION_FACTOR_CONFIG, "1",
                        StreamsConfig.producerPrefix("transaction.timeout.ms"), "10000"));
        for (int number = 6; number < arguments.length; number++) {
            String[] property = arguments[number].split("=", 2);
            settings.put(property[0], property[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> java.util.Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
                .count(
                        Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                                .withKeySerde(Serdes.String())
                                .withValueSerde(Serdes.Long()))
                .toStream()
                .to(arguments[3], Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams application = new KafkaStreams(builder.build(), settings);
        application.setStateListener((now, before) -> System.out.println(now));
        application.setUncaughtExceptionHandler(
                failure -> {
                    failure.printStackTrace();
                    return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD;
                });
        application.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> application.close(Duration.ofSeconds(20))));
    }
}
