import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs commands of Kafka one after the other in one JVM: "CLASS ARGUMENT... ; CLASS ARGUMENT...".
 * The output of each on stdout and on stderr is ended by a line "==".
 */
class KafkaTools {
    public static void main(String[] words) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            throw new Ended();
        });
        int start = 0;
        for (int end = 0; end <= words.length; end++) {
            if (end == words.length || words[end].equals(";")) {
                run(words[start], Arrays.copyOfRange(words, start + 1, end));
                System.out.println("==");
                System.err.println("==");
                start = end + 1;
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void run(String name, String[] arguments) throws Exception {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (java.lang.reflect.InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Ended)) {
                throw failure;
            }
        }
    }

    private static class Ended extends RuntimeException {}
}
