import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

/**
 * Measures rates and token buckets as Apache Kafka does.
 *
 * <p>Reads "new samples sampleMs quota", which starts both anew, and "record value nowMs"; answers each record with the rate, the
 * length of its window in ms and the tokens.
 */
class KafkaRates {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        MetricConfig config = null;
        Rate rate = null;
        TokenBucket bucket = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("new")) {
                config = new MetricConfig()
                    .samples(Integer.parseInt(words[1]))
                    .timeWindow(Long.parseLong(words[2]), TimeUnit.MILLISECONDS)
                    .quota(Quota.upperBound(Double.parseDouble(words[3])));
                rate = new Rate();
                bucket = new TokenBucket();
                continue;
            }
            double value = Double.parseDouble(words[1]);
            long nowMs = Long.parseLong(words[2]);
            rate.record(config, value, nowMs);
            bucket.record(config, value, nowMs);
            System.out.println(
                rate.measure(config, nowMs) + " " + rate.windowSize(config, nowMs) + " " + bucket.measure(config, nowMs));
        }
    }
}
