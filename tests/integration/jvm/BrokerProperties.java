import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;

/**
 * Prints the properties of topics and brokers that these jars define, one a line: "topic" or "broker", name, type,
 * default and validator, separated by tabs.  Then answers each line of its input, which is scope, name and value: by
 * "accepted", "refused" or "unknown".
 */
public class BrokerProperties {
    public static void main(String[] args) throws Exception {
        var defined = Map.of(
                "topic", topics(), "broker", (ConfigDef) scalaObject("kafka.server.KafkaConfig", "configDef"));
        print("topic", defined.get("topic"));
        print("broker", defined.get("broker"));
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            var words = line.split("\t", -1);
            System.out.println(answer(defined.get(words[0]), words[1], words[2]));
        }
    }

    private static String answer(ConfigDef definition, String name, String value) {
        var key = definition.configKeys().get(name);
        if (key == null) {
            return "unknown";
        }
        try {
            var parsed = ConfigDef.parseType(name, value, key.type);
            if (key.validator != null) {
                key.validator.ensureValid(name, parsed);
            }
            return "accepted";
        } catch (ConfigException error) {
            return "refused";
        }
    }

    private static ConfigDef topics() throws Exception {
        try {
            var logConfig = Class.forName("org.apache.kafka.storage.internals.log.LogConfig");
            return (ConfigDef) logConfig.getMethod("configDefCopy").invoke(null);
        } catch (ClassNotFoundException before3) {
            try {
                return (ConfigDef) scalaObject("kafka.log.LogConfig", "configDefCopy");
            } catch (NoSuchMethodException before28) {
                return (ConfigDef) scalaObject("kafka.log.LogConfig", "kafka$log$LogConfig$$configDef");
            }
        }
    }

    private static Object scalaObject(String name, String method) throws Exception {
        var type = Class.forName(name + "$");
        Method found;
        try {
            found = type.getDeclaredMethod(method);
        } catch (NoSuchMethodException absent) {
            found = type.getDeclaredMethod(name.replace('.', '$') + "$$" + method);
        }
        found.setAccessible(true);
        return found.invoke(type.getField("MODULE$").get(null));
    }

    private static void print(String kind, ConfigDef definition) {
        new TreeMap<>(definition.configKeys()).forEach((name, key) -> System.out.println(String.join("\t",
                kind, name, key.type.name(), text(key.defaultValue), text(key.validator).replace('\n', ' '))));
    }

    private static String text(Object value) {
        return value == ConfigDef.NO_DEFAULT_VALUE ? "(required)" : String.valueOf(value);
    }
}
