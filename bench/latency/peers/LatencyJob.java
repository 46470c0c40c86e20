import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.sink2.Committer;
import org.apache.flink.api.connector.sink2.CommitterInitContext;
import org.apache.flink.api.connector.sink2.CommittingSinkWriter;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.SupportsCommitter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.flink.util.InstantiationUtil;

/** The latency job in Flink. Arguments: records per second, seconds, seconds of warm-up, stages, "idempotent" or
 * "transactional", checkpoint interval, checkpoint folder. Prints percentiles of the latency in milliseconds. */
public class LatencyJob {
    static final long KEYS = 20_000;
    /** {when a record appeared, how old it was when it was there}: all subtasks are in this process. */
    static final List<long[]> LATENCIES = Collections.synchronizedList(new ArrayList<>());

    static void there(long appearedMs) {
        LATENCIES.add(new long[] {appearedMs, System.currentTimeMillis() - appearedMs});
    }

    public static class CountPerKey
            extends KeyedProcessFunction<Long, Tuple2<Long, Long>, Tuple2<Long, Long>> {
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(Tuple2<Long, Long> value, Context context, Collector<Tuple2<Long, Long>> out)
                throws Exception {
            Long before = count.value();
            count.update((before == null ? 0 : before) + 1);
            out.collect(value);
        }
    }

    public static class Idempotent implements Sink<Tuple2<Long, Long>> {
        @Override
        public SinkWriter<Tuple2<Long, Long>> createWriter(WriterInitContext context) {
            return new SinkWriter<>() {
                @Override
                public void write(Tuple2<Long, Long> value, Context context) {
                    there(value.f1);
                }

                @Override
                public void flush(boolean endOfInput) {}

                @Override
                public void close() {}
            };
        }
    }

    public static class Transactional implements Sink<Tuple2<Long, Long>>, SupportsCommitter<long[]> {
        @Override
        public CommittingSinkWriter<Tuple2<Long, Long>, long[]> createWriter(WriterInitContext context) {
            return new CommittingSinkWriter<>() {
                private List<Long> pending = new ArrayList<>();

                @Override
                public void write(Tuple2<Long, Long> value, Context context) {
                    pending.add(value.f1);
                }

                @Override
                public Collection<long[]> prepareCommit() {
                    long[] prepared = pending.stream().mapToLong(Long::longValue).toArray();
                    pending = new ArrayList<>();
                    return List.of(prepared);
                }

                @Override
                public void flush(boolean endOfInput) {}

                @Override
                public void close() {}
            };
        }

        @Override
        public Committer<long[]> createCommitter(CommitterInitContext context) {
            return new Committer<>() {
                @Override
                public void commit(Collection<CommitRequest<long[]>> requests) {
                    for (CommitRequest<long[]> request : requests) {
                        Arrays.stream(request.getCommittable()).forEach(LatencyJob::there);
                    }
                }

                @Override
                public void close() {}
            };
        }

        @Override
        public SimpleVersionedSerializer<long[]> getCommittableSerializer() {
            return new SimpleVersionedSerializer<>() {
                @Override
                public int getVersion() {
                    return 1;
                }

                @Override
                public byte[] serialize(long[] committable) throws IOException {
                    return InstantiationUtil.serializeObject(committable);
                }

                @Override
                public long[] deserialize(int version, byte[] serialized) throws IOException {
                    try {
                        return InstantiationUtil.deserializeObject(serialized, getClass().getClassLoader());
                    } catch (ClassNotFoundException problem) {
                        throw new IOException(problem);
                    }
                }
            };
        }
    }

    public static void main(String[] arguments) throws Exception {
        long perSecond = Long.parseLong(arguments[0]);
        long total = perSecond * Long.parseLong(arguments[1]);
        long warmUpMs = 1000 * Long.parseLong(arguments[2]);
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.type", "hashmap");
        configuration.setString("execution.checkpointing.interval", arguments[5]);
        configuration.setString("execution.checkpointing.dir", "file://" + arguments[6]);
        configuration.setString("rest.bind-port", "0");
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(2, configuration);
        GeneratorFunction<Long, Tuple2<Long, Long>> now = number -> new Tuple2<>(number, System.currentTimeMillis());
        DataStream<Tuple2<Long, Long>> stream = environment.fromSource(
                new DataGeneratorSource<>(
                        now, total, RateLimiterStrategy.perSecond(perSecond), Types.TUPLE(Types.LONG, Types.LONG)),
                WatermarkStrategy.noWatermarks(),
                "paced");
        for (int stage = 0; stage < Integer.parseInt(arguments[3]); stage++) {
            long divisor = 1 + stage;
            stream = stream.keyBy(value -> value.f0 / divisor % KEYS, Types.LONG)
                    .process(new CountPerKey())
                    .returns(Types.TUPLE(Types.LONG, Types.LONG));
        }
        stream.sinkTo(arguments[4].equals("idempotent") ? new Idempotent() : new Transactional());
        environment.execute("latency");
        if (LATENCIES.size() != total) {
            throw new IllegalStateException(LATENCIES.size() + " of " + total + " records");
        }
        long firstMs = LATENCIES.stream().mapToLong(latency -> latency[0]).min().getAsLong();
        long[] steady = LATENCIES.stream()
                .filter(latency -> latency[0] > firstMs + warmUpMs)
                .mapToLong(latency -> latency[1])
                .sorted()
                .toArray();
        StringBuilder line = new StringBuilder("{");
        for (int percent : new int[] {50, 90, 99, 100}) {
            int index = (int) Math.min(steady.length - 1, Math.ceil(steady.length * percent / 100.0));
            line.append(percent == 50 ? "" : ", ").append("\"p").append(percent).append("\": ").append(steady[index]);
        }
        System.out.println(line.append("}"));
    }
}
