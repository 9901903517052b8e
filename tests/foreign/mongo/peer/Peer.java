import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.net.InetSocketAddress;
import java.util.List;

/**
 * Starts mongo-java-server with its memory backend, until the standard input ends.
 *
 * <p>usage: Peer PORT
 *
 * <p>Port 0 is a free one. Prints {@code ready mongo=HOST:PORT}. The drivers of today refuse the version
 * that this server calls itself by default, so it has that of MongoDB 7.0.
 */
public final class Peer {
    /** MongoDB 7.0. */
    private static final class Seven implements MongoVersion {
        @Override
        public List<Integer> getVersionArray() {
            return List.of(7, 0, 0);
        }

        @Override
        public int getWireVersion() {
            return 21;
        }
    }

    public static void main(String[] arguments) throws Exception {
        MemoryBackend backend = new MemoryBackend();
        backend.version(new Seven());
        MongoServer server = new MongoServer(backend);
        server.bind("127.0.0.1", Integer.parseInt(arguments[0]));
        InetSocketAddress address = server.getLocalAddress();
        System.out.println("ready mongo=127.0.0.1:" + address.getPort());
        System.out.flush();
        System.in.readAllBytes();
        server.shutdownNow();
        System.exit(0);
    }
}
