import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's commands one after the other in one JVM.  A request on stdin is the number of words, and the words: a class
 * and its arguments, each with its length.  The response on stdout is the exit status, and what the command has written to
 * stdout and to stderr, each with its length.
 */
class KafkaTools {
    /** What Kafka's classes write to.  They keep the streams that they find first. */
    private static final Switch OUT = new Switch();
    private static final Switch ERR = new Switch();
    private static volatile boolean printsHelp;
    private static Integer status;

    public static void main(String[] words) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream responses = new DataOutputStream(System.out);
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        System.setOut(new Output(OUT));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        while (true) {
            String[] arguments = new String[requests.readInt() - 1];
            String name = read(requests);
            for (int number = 0; number < arguments.length; number++) {
                arguments[number] = read(requests);
            }
            run(name, arguments);
            responses.writeInt(status);
            write(responses, OUT.take());
            write(responses, ERR.take());
            responses.flush();
        }
    }

    private static String read(DataInputStream requests) throws IOException {
        byte[] word = new byte[requests.readInt()];
        requests.readFully(word);
        return new String(word, StandardCharsets.UTF_8);
    }

    private static void write(DataOutputStream responses, byte[] text) throws IOException {
        responses.writeInt(text.length);
        responses.write(text);
    }

    private static void run(String name, String[] arguments) throws Exception {
        status = null;
        OUT.isOpen = true;
        ERR.isOpen = true;
        printsHelp = arguments.length > 0 && arguments[arguments.length - 1].equals("--help");
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            if (status == null && !(failure.getCause() instanceof Ended)) {
                System.err.print("Exception in thread \"main\" ");
                failure.getCause().printStackTrace();
                status = 1;
            }
        } finally {
            printsHelp = false;
        }
        if (status == null) {
            status = 0;
        }
    }

    /** The end of the command: what it does when it catches this exception has no effect. */
    private static void end(int code) {
        if (status == null) {
            status = code;
            OUT.isOpen = false;
            ERR.isOpen = false;
        }
        throw new Ended();
    }

    private static class Switch extends OutputStream {
        private final ByteArrayOutputStream written = new ByteArrayOutputStream();
        private volatile boolean isOpen;

        @Override
        public synchronized void write(int one) {
            if (isOpen) {
                written.write(one);
            }
        }

        @Override
        public synchronized void write(byte[] bytes, int from, int count) {
            if (isOpen) {
                written.write(bytes, from, count);
            }
        }

        synchronized byte[] take() {
            isOpen = false;
            byte[] all = written.toByteArray();
            written.reset();
            return all;
        }
    }

    /** Ends a command that has written its help, because argparse4j would end the JVM then. */
    private static class Output extends PrintStream {
        Output(OutputStream out) {
            super(out, false, StandardCharsets.UTF_8);
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
