import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;
import org.apache.kafka.shaded.io.opentelemetry.proto.common.v1.KeyValue;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.AggregationTemporality;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.Metric;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.MetricsData;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.NumberDataPoint;
import org.apache.kafka.shaded.io.opentelemetry.proto.metrics.v1.ResourceMetrics;

/**
 * A receiver of client metrics (KIP-714) in a broker, by `metric.reporters`.  It decodes what clients push, and appends a
 * line for each value to the file that the property `telemetry.file` of the broker names: the id of the client, whether
 * the push was the last one, the attributes of the client, the name, the kind, the value and the labels, separated by tabs.
 */
public class TelemetryReceiver implements MetricsReporter, ClientTelemetry, ClientTelemetryReceiver {
    private Path file;

    @Override
    public void configure(Map<String, ?> properties) {
        file = Path.of(properties.get("telemetry.file").toString());
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return this;
    }

    @Override
    public synchronized void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        StringBuilder lines = new StringBuilder();
        try {
            ByteBuffer data = payload.data();
            for (ResourceMetrics client : MetricsData.parseFrom(data).getResourceMetricsList()) {
                String start = payload.clientInstanceId() + "\t" + payload.isTerminating() + "\t"
                    + text(client.getResource().getAttributesList());
                client.getScopeMetricsList().stream().flatMap(scope -> scope.getMetricsList().stream()).forEach(metric -> {
                    for (NumberDataPoint point : points(metric)) {
                        String[] words = {
                            start, metric.getName(), kind(metric), Double.toString(point.getAsDouble()),
                            text(point.getAttributesList())
                        };
                        lines.append(String.join("\t", words)).append("\n");
                    }
                });
            }
            Files.write(file, lines.toString().getBytes(StandardCharsets.UTF_8), StandardOpenOption.CREATE,
                StandardOpenOption.APPEND);
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    private static List<NumberDataPoint> points(Metric metric) {
        return metric.hasSum() ? metric.getSum().getDataPointsList() : metric.getGauge().getDataPointsList();
    }

    private static String kind(Metric metric) {
        if (!metric.hasSum()) {
            return "gauge";
        }
        AggregationTemporality temporality = metric.getSum().getAggregationTemporality();
        boolean isDelta = temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA;
        return (isDelta ? "delta" : "cumulative") + (metric.getSum().getIsMonotonic() ? "" : " not monotonic");
    }

    private static String text(List<KeyValue> attributes) {
        return attributes.stream().map(pair -> pair.getKey() + "=" + pair.getValue().getStringValue())
            .collect(Collectors.joining(","));
    }

    @Override
    public void init(List<KafkaMetric> metrics) {}

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public void close() {}
}
