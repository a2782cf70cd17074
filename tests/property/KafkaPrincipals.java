import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.HexFormat;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Names the owner of a certificate as Apache Kafka does.
 *
 * <p>Reads lines "rules certificate", both in hex; answers each with the name, or "!" and the kind of the error, in hex.
 */
class KafkaPrincipals {
    public static void main(String[] arguments) throws Exception {
        CertificateFactory certificates = CertificateFactory.getInstance("X.509");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            String rules = new String(HexFormat.of().parseHex(words[0]), StandardCharsets.UTF_8);
            X509Certificate certificate = (X509Certificate) certificates.generateCertificate(
                new ByteArrayInputStream(HexFormat.of().parseHex(words[1])));
            String answer;
            try {
                SslPrincipalMapper mapper = SslPrincipalMapper.fromRules(rules);
                try {
                    answer = mapper.getName(certificate.getSubjectX500Principal().getName());
                } catch (Exception refused) {
                    answer = "! no rule";
                }
            } catch (Exception refused) {
                answer = "! invalid";
            }
            System.out.println(HexFormat.of().formatHex(answer.getBytes(StandardCharsets.UTF_8)));
        }
    }
}
