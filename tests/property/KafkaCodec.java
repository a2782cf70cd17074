import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Decodes messages with Kafka's own generated classes and encodes them again.
 *
 * <p>Reads lines "class version hex"; answers each with "hex TAB json", or with "? reason". The hex is that of the message encoded
 * again, the json what Kafka read (empty for classes that cannot be written as json).
 */
class KafkaCodec {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            System.out.println(answer(words[0], Short.parseShort(words[1]), HexFormat.of().parseHex(words[2])));
        }
    }

    private static String answer(String name, short version, byte[] bytes) {
        try {
            Class<?> type = Class.forName(name);
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            Message message = (Message) type.getDeclaredConstructor().newInstance();
            if (version < message.lowestSupportedVersion() || version > message.highestSupportedVersion()) {
                return "? no such version";
            }
            message.read(new ByteBufferAccessor(buffer), version);
            if (buffer.hasRemaining()) {
                return "? " + buffer.remaining() + " bytes left over";
            }
            return HexFormat.of().formatHex(written(message, version)) + "\t" + json(type, message, version);
        } catch (ClassNotFoundException unknown) {
            return "? no such class";
        } catch (Exception refused) {
            return "? " + refused;
        }
    }

    private static byte[] written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        byte[] bytes = new byte[message.size(cache, version)];
        message.write(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), cache, version);
        return bytes;
    }

    private static String json(Class<?> type, Message message, short version) throws Exception {
        Class<?> converter;
        try {
            converter = Class.forName(type.getName() + "JsonConverter");
        } catch (ClassNotFoundException none) {
            return "";
        }
        JsonNode node = (JsonNode) converter.getMethod("write", type, short.class).invoke(null, message, version);
        return node.toString();
    }
}
