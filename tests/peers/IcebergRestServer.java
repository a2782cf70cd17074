import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.EnumSet;
import java.util.Map;
import org.apache.iceberg.Files;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * Serves Apache Iceberg's own REST catalogue, which its tests use, with tables in a folder and OAuth2.
 *
 * Arguments: the folder, the id and the secret of the only client.  Prints the port.  Ends with its standard input.
 */
public class IcebergRestServer {
    /** Files of this machine, without Hadoop. */
    public static class LocalFileIO implements FileIO {
        private static String path(String location) {
            return location.startsWith("file:") ? location.substring("file:".length()).replaceFirst("^/+", "/") : location;
        }

        @Override
        public InputFile newInputFile(String location) {
            return Files.localInput(path(location));
        }

        @Override
        public OutputFile newOutputFile(String location) {
            return Files.localOutput(path(location));
        }

        @Override
        public void deleteFile(String location) {
            new java.io.File(path(location)).delete();
        }
    }

    /** The servlet issues tokens to everybody and checks none. */
    static class Authorization implements Filter {
        private final String id;
        private final String secret;

        Authorization(String id, String secret) {
            this.id = id;
            this.secret = secret;
        }

        @Override
        public void doFilter(ServletRequest given, ServletResponse response, FilterChain chain)
                throws IOException, jakarta.servlet.ServletException {
            HttpServletRequest request = (HttpServletRequest) given;
            boolean isAllowed;
            if (request.getRequestURI().endsWith("/v1/oauth/tokens")) {
                String body = request.getReader().lines().reduce("", String::concat);
                isAllowed = body.contains("client_id=" + id + "&") && body.contains("client_secret=" + secret);
                given = new Again(request, body);
            } else {
                String token = "Bearer client-credentials-token:sub=" + id;
                isAllowed = token.equals(request.getHeader("Authorization"));
            }
            if (isAllowed) {
                chain.doFilter(given, response);
            } else {
                HttpServletResponse refused = (HttpServletResponse) response;
                refused.setStatus(401);
                refused.setContentType("application/json");
                boolean isToken = given instanceof Again;
                refused.getWriter().write(isToken
                    ? "{\"error\":\"invalid_client\",\"error_description\":\"wrong client id or secret\"}"
                    : "{\"error\":{\"message\":\"no token\",\"type\":\"NotAuthorizedException\",\"code\":401}}");
            }
        }
    }

    /** A request whose body is read again. */
    static class Again extends HttpServletRequestWrapper {
        private final String body;

        Again(HttpServletRequest request, String body) {
            super(request);
            this.body = body;
        }

        @Override
        public jakarta.servlet.ServletInputStream getInputStream() {
            java.io.ByteArrayInputStream bytes = new java.io.ByteArrayInputStream(body.getBytes());
            return new jakarta.servlet.ServletInputStream() {
                @Override
                public int read() {
                    return bytes.read();
                }

                @Override
                public boolean isFinished() {
                    return bytes.available() == 0;
                }

                @Override
                public boolean isReady() {
                    return true;
                }

                @Override
                public void setReadListener(jakarta.servlet.ReadListener listener) {
                    throw new UnsupportedOperationException();
                }
            };
        }
    }

    public static void main(String[] args) throws Exception {
        String folder = args[0];
        JdbcCatalog catalog = new JdbcCatalog();
        catalog.initialize("tests", Map.of(
            "uri", "jdbc:sqlite:" + folder + "/catalog.db",
            "warehouse", folder + "/warehouse",
            "io-impl", LocalFileIO.class.getName(),
            "jdbc.schema-version", "V1"));
        ServletContextHandler context = new ServletContextHandler();
        context.addFilter(new FilterHolder(new Authorization(args[1], args[2])), "/*",
            EnumSet.of(jakarta.servlet.DispatcherType.REQUEST));
        context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        Server server = new Server();
        ServerConnector connector = new ServerConnector(server);
        connector.setHost("127.0.0.1");
        server.addConnector(connector);
        server.setHandler(context);
        server.start();
        System.out.println(connector.getLocalPort());
        System.in.read();
        server.stop();
        catalog.close();
    }
}
