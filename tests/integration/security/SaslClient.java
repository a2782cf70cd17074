import java.io.FileInputStream;
import java.io.InputStream;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateDelegationTokenOptions;
import org.apache.kafka.clients.admin.ExpireDelegationTokenOptions;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A Java client that authenticates.
 *
 * <p>"check FILE..." prints for each file of client properties "ok", or "! " with the exception; "reauth FILE TOPIC COUNT" produces
 * until the client has authenticated again COUNT times; "tokens FILE" creates, uses, renews and expires a delegation token.
 */
class SaslClient {
    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "check":
                for (int i = 1; i < arguments.length; i++) {
                    System.out.println(check(properties(arguments[i])));
                }
                break;
            case "reauth":
                System.out.println(reauthenticate(properties(arguments[1]), arguments[2], Integer.parseInt(arguments[3])));
                break;
            default:
                tokens(properties(arguments[1]));
        }
    }

    private static Properties properties(String path) throws Exception {
        Properties properties = new Properties();
        try (InputStream file = new FileInputStream(path)) {
            properties.load(new java.io.InputStreamReader(file, java.nio.charset.StandardCharsets.UTF_8));
        }
        properties.putIfAbsent("default.api.timeout.ms", "20000");
        properties.putIfAbsent("request.timeout.ms", "15000");
        return properties;
    }

    private static String check(Properties properties) {
        try (Admin admin = Admin.create(properties)) {
            admin.describeCluster().nodes().get(30, TimeUnit.SECONDS);
            return "ok";
        } catch (Exception refused) {
            Throwable cause = refused.getCause() == null ? refused : refused.getCause();
            return "! " + cause.getClass().getSimpleName() + ": " + cause.getMessage();
        }
    }

    private static String reauthenticate(Properties properties, String topic, int count) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        int produced = 0;
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            while (System.nanoTime() < end) {
                producer.send(new ProducerRecord<>(topic, "value")).get(30, TimeUnit.SECONDS);
                produced++;
                double times = producer.metrics().entrySet().stream()
                    .filter(entry -> entry.getKey().name().equals("successful-reauthentication-total"))
                    .mapToDouble(entry -> (Double) entry.getValue().metricValue())
                    .max().orElse(0);
                double failures = producer.metrics().entrySet().stream()
                    .filter(entry -> entry.getKey().name().equals("failed-reauthentication-total"))
                    .mapToDouble(entry -> (Double) entry.getValue().metricValue())
                    .max().orElse(0);
                if (times >= count) {
                    return "ok " + (long) failures + " " + produced;
                }
            }
        }
        return "! not within 60 s, produced " + produced;
    }

    private static void tokens(Properties properties) throws Exception {
        try (Admin admin = Admin.create(properties)) {
            CreateDelegationTokenOptions options = new CreateDelegationTokenOptions();
            options.renewers(List.of(new KafkaPrincipal("User", "renewer"))).maxlifeTimeMs(3_600_000);
            DelegationToken token = admin.createDelegationToken(options).delegationToken().get(30, TimeUnit.SECONDS);
            System.out.println("created " + token.tokenInfo().ownerAsString() + " " + token.tokenInfo().renewersAsString());
            boolean described = admin.describeDelegationToken().delegationTokens().get(30, TimeUnit.SECONDS).contains(token);
            System.out.println("described " + described);
            Properties bearer = new Properties();
            bearer.putAll(properties);
            bearer.put("sasl.mechanism", "SCRAM-SHA-512");
            bearer.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required username=\""
                + token.tokenInfo().tokenId() + "\" password=\"" + token.hmacAsBase64String() + "\" tokenauth=true;");
            System.out.println("login " + check(bearer));
            try (Admin other = Admin.create(bearer)) {
                other.createDelegationToken().delegationToken().get(30, TimeUnit.SECONDS);
                System.out.println("created by a token");
            } catch (Exception refused) {
                System.out.println("from a token " + refused.getCause().getClass().getSimpleName());
            }
            long renewed = admin.renewDelegationToken(token.hmac()).expiryTimestamp().get(30, TimeUnit.SECONDS);
            System.out.println("renewed " + (renewed == token.tokenInfo().maxTimestamp()));
            admin.expireDelegationToken(token.hmac(), new ExpireDelegationTokenOptions().expiryTimePeriodMs(-1))
                .expiryTimestamp().get(30, TimeUnit.SECONDS);
            System.out.println("after expiry " + check(bearer));
        }
    }
}
