import io.lettuce.core.ReadFrom;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.sync.RedisStringCommands;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.masterreplica.MasterReplica;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.NettyCustomizer;
import io.netty.channel.Channel;
import io.netty.channel.ChannelDuplexHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelPromise;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * Lettuce's clients of Redis Cluster and of Sentinel at a cluster whose primaries die.
 *
 * <p>usage: Clients GROUP HOST:PORT...
 *
 * <p>Group: of the clients of Sentinel. tests/src/client_program.rs says what this program prints, and
 * when it ends.
 */
public final class Clients {
    /** Between two keys of a writer, and behind one that was not acknowledged. */
    private static final long PAUSE_MS = 3;
    private static final long REST_MS = 20;
    /** Tries of a read at the end, which fails while no server leads. */
    private static final int TRIES = 500;
    /** Without it a server that stands still holds a request for a minute. */
    private static final Duration TIMEOUT = Duration.ofSeconds(2);
    /** Between two times that the client of Redis Cluster asks for the map of the slots. */
    private static final Duration REFRESH = Duration.ofSeconds(1);

    private static final AtomicBoolean IS_OVER = new AtomicBoolean();
    private static final AtomicLong LONGEST_MS = new AtomicLong();

    private static synchronized void say(String text) {
        System.out.println(text);
        System.out.flush();
    }

    private static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    /** Notes how long a request has taken. */
    private static <T> T timed(Supplier<T> request) {
        long begin = System.nanoTime();
        try {
            return request.get();
        } finally {
            LONGEST_MS.accumulateAndGet((System.nanoTime() - begin) / 1_000_000, Math::max);
        }
    }

    /** Sets one key after the other, each once. */
    private static final class Writer {
        private final String name;
        private final RedisStringCommands<String, String> commands;
        private final List<Integer> acknowledged = new ArrayList<>();

        Writer(String name, RedisStringCommands<String, String> commands) {
            this.name = name;
            this.commands = commands;
        }

        private String key(int number) {
            return "{" + name.charAt(name.length() - 1) + "}:" + name + ":" + number;
        }

        void write() {
            for (int number = 0; !IS_OVER.get(); number++) {
                String key = key(number);
                String value = Integer.toString(number);
                try {
                    timed(() -> commands.set(key, value));
                } catch (RuntimeException error) {
                    say("failed " + name + " " + number + " " + error.toString().replace('\n', ' '));
                    sleep(REST_MS);
                    continue;
                }
                acknowledged.add(number);
                say("set " + name + " " + number);
                try {
                    if (!value.equals(timed(() -> commands.get(key)))) {
                        say("stale " + name + " " + number);
                    }
                } catch (RuntimeException error) {
                    // It says nothing about the key.
                }
                sleep(PAUSE_MS);
            }
        }

        private String find(String key) {
            for (int attempt = 0; attempt < TRIES; attempt++) {
                try {
                    return commands.get(key);
                } catch (RuntimeException error) {
                    sleep(REST_MS);
                }
            }
            return null;
        }

        /** Reads all that was acknowledged. */
        void look() {
            for (int number : acknowledged) {
                if (!Integer.toString(number).equals(find(key(number)))) {
                    say("lost " + name + " " + number);
                }
            }
            say("found " + name + " " + acknowledged.size());
        }
    }

    private static List<Thread> each(List<Writer> writers, Consumer<Writer> act) {
        List<Thread> threads = new ArrayList<>();
        for (Writer writer : writers) {
            Thread thread = new Thread(() -> act.accept(writer));
            thread.start();
            threads.add(thread);
        }
        return threads;
    }

    private static RedisStringCommands<String, String> cluster(List<RedisURI> servers) {
        RedisClusterClient client = RedisClusterClient.create(servers);
        // Without them it keeps the topology that it has seen first.
        ClusterTopologyRefreshOptions refresh = ClusterTopologyRefreshOptions.builder()
                .enableAllAdaptiveRefreshTriggers()
                .enablePeriodicRefresh(REFRESH)
                .build();
        client.setOptions(ClusterClientOptions.builder().topologyRefreshOptions(refresh).build());
        return client.connect().sync();
    }

    /**
     * Ends a connection on which a request has had no reply for TIMEOUT, and nothing else has come either.
     *
     * <p>RedisClient asks a Sentinel for the primary only when it connects, and its own timeout leaves the
     * connection open. One to a server that stands still stays open for as long as that server does.
     */
    private static final class Silence extends ChannelDuplexHandler {
        private Future<?> end;

        @Override
        public void write(ChannelHandlerContext context, Object request, ChannelPromise promise) {
            if (end == null) {
                end = context.executor().schedule(
                        () -> context.close(), TIMEOUT.toMillis(), TimeUnit.MILLISECONDS);
            }
            context.write(request, promise);
        }

        @Override
        public void channelRead(ChannelHandlerContext context, Object reply) {
            isOver();
            context.fireChannelRead(reply);
        }

        @Override
        public void channelInactive(ChannelHandlerContext context) {
            isOver();
            context.fireChannelInactive();
        }

        private void isOver() {
            if (end != null) {
                end.cancel(false);
                end = null;
            }
        }
    }

    private static RedisClient endsSilence(RedisURI group) {
        NettyCustomizer customizer = new NettyCustomizer() {
            @Override
            public void afterChannelInitialized(Channel channel) {
                // In front of Lettuce's own, which make bytes of requests.
                channel.pipeline().addFirst(new Silence());
            }
        };
        return RedisClient.create(ClientResources.builder().nettyCustomizer(customizer).build(), group);
    }

    private static RedisURI sentinel(String group, List<RedisURI> servers) {
        RedisURI first = servers.get(0);
        RedisURI.Builder builder = RedisURI.Builder.sentinel(first.getHost(), first.getPort(), group);
        for (RedisURI other : servers.subList(1, servers.size())) {
            builder.withSentinel(other.getHost(), other.getPort());
        }
        return builder.withTimeout(TIMEOUT).build();
    }

    public static void main(String[] arguments) throws Exception {
        List<RedisURI> servers = new ArrayList<>();
        for (String place : Arrays.asList(arguments).subList(1, arguments.length)) {
            int colon = place.lastIndexOf(':');
            int port = Integer.parseInt(place.substring(colon + 1));
            servers.add(RedisURI.builder()
                    .withHost(place.substring(0, colon)).withPort(port).withTimeout(TIMEOUT).build());
        }
        RedisURI group = sentinel(arguments[0], servers);
        var cluster = cluster(servers);
        var masterReplica = MasterReplica.connect(RedisClient.create(), StringCodec.UTF8, group);
        masterReplica.setReadFrom(ReadFrom.MASTER);
        var master = endsSilence(group).connect();

        List<Writer> writers = new ArrayList<>();
        // The slots of b and c are low ones, those of a and d are high ones.
        for (String tag : List.of("a", "b", "c", "d")) {
            writers.add(new Writer("cluster-" + tag, cluster));
        }
        writers.add(new Writer("sentinel-b", masterReplica.sync()));
        writers.add(new Writer("sentinel-c", master.sync()));
        List<Thread> load = each(writers, Writer::write);
        System.in.readAllBytes();
        IS_OVER.set(true);
        for (Thread thread : load) {
            thread.join();
        }
        for (Thread thread : each(writers, Writer::look)) {
            thread.join();
        }
        say("end " + LONGEST_MS.get());
        System.exit(0);
    }
}
