import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import kafka.utils.PasswordEncoder;
import org.apache.kafka.common.config.types.Password;
import scala.Option;

/**
 * Encrypts and decrypts passwords as Apache Kafka does.
 *
 * <p>Reads lines "encode secret keyBits password" and "decode secret keyBits text", secret, password and text in hex; answers each
 * in hex.
 */
class KafkaPasswords {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            PasswordEncoder encoder = new PasswordEncoder(
                new Password(text(words[1])), Option.empty(), "AES/CBC/PKCS5Padding", Integer.parseInt(words[2]), 4096);
            String answer = words[0].equals("encode")
                ? encoder.encode(new Password(text(words[3])))
                : encoder.decode(text(words[3])).value();
            System.out.println(HexFormat.of().formatHex(answer.getBytes(StandardCharsets.UTF_8)));
        }
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }
}
