import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;

/**
 * Answers from Kafka's own classes, a line for each line: "names" (the properties of the clients, as CLIENT:NAME),
 * "value CLIENT NAME VALUE" and "jaas VALUE", with VALUE in base64.  An answer is the result or "refused".
 */
public class Settings {
    private static final Map<String, String> CLASSES = Map.of(
            "A", "admin.AdminClientConfig", "C", "consumer.ConsumerConfig", "P", "producer.ProducerConfig");

    public static void main(String[] args) throws Exception {
        var defined = new TreeMap<String, ConfigDef>();
        for (var each : CLASSES.entrySet()) {
            var field = Class.forName("org.apache.kafka.clients." + each.getValue()).getDeclaredField("CONFIG");
            field.setAccessible(true);
            defined.put(each.getKey(), (ConfigDef) field.get(null));
        }
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            var words = line.split(" ", -1);
            try {
                System.out.println(answer(defined, words));
            } catch (Exception error) {
                System.out.println("refused");
            }
        }
    }

    private static String answer(Map<String, ConfigDef> defined, String[] words) {
        switch (words[0]) {
            case "names": {
                var names = new StringBuilder();
                defined.forEach((client, def) -> def.names().forEach(name -> names.append(client + ":" + name + " ")));
                return names.toString().trim();
            }
            case "value": {
                var key = defined.get(words[1]).configKeys().get(words[2]);
                var value = ConfigDef.parseType(words[2], text(words[3]), key.type);
                if (key.validator != null) {
                    key.validator.ensureValid(words[2], value);
                }
                return "accepted";
            }
            default: {
                var context = JaasContext.loadClientContext(Map.of(
                        "sasl.mechanism", "PLAIN", "sasl.jaas.config", new Password(text(words[1]))));
                var entry = context.configurationEntries().get(0);
                var options = new StringBuilder(encoded(entry.getLoginModuleName()));
                new TreeMap<>(entry.getOptions())
                        .forEach((name, value) -> options.append(" " + encoded(name) + "=" + encoded((String) value)));
                return options.toString();
            }
        }
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    private static String encoded(String text) {
        return Base64.getEncoder().withoutPadding().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
