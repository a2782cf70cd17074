import java.io.PrintStream;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs commands of Kafka one after the other in one JVM: "CLASS ARGUMENT... ; CLASS ARGUMENT...".
 * The output of each on stdout and on stderr is ended by a line "==".
 */
class KafkaTools {
    private static boolean printsHelp;

    public static void main(String[] words) throws Exception {
        Exit.setExitProcedure((status, message) -> {
            throw new Ended();
        });
        System.setOut(new Output(System.out));
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
        printsHelp = arguments.length > 0 && arguments[arguments.length - 1].equals("--help");
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (java.lang.reflect.InvocationTargetException failure) {
            if (!(printsHelp || failure.getCause() instanceof Ended)) {
                throw failure;
            }
        } finally {
            printsHelp = false;
        }
    }

    /** Ends a command that has written its help, because argparse4j would end the JVM then. */
    private static class Output extends PrintStream {
        Output(PrintStream out) {
            super(out);
        }

        @Override
        public void flush() {
            super.flush();
            if (printsHelp) {
                throw new Ended();
            }
        }
    }

    private static class Ended extends RuntimeException {}
}
