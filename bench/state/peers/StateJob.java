import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/** Large state in Flink. Arguments: checkpoint interval, checkpoint folder, parallelism, managed memory, entries,
 * records, "default" or "tuned". Prints the seconds it took. */
public class StateJob {
    static final int ENTRIES_PER_KEY = 10;
    static final int VALUE_REPEATS = 14;
    static final long STRIDE = 7_919;

    public static class Touch extends KeyedProcessFunction<String, Tuple3<String, String, Long>, Long> {
        private transient MapState<String, String> entries;

        @Override
        public void open(OpenContext context) {
            entries = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("entries", Types.STRING, Types.STRING));
        }

        @Override
        public void processElement(Tuple3<String, String, Long> value, Context context, Collector<Long> out)
                throws Exception {
            String before = entries.get(value.f1);
            entries.put(value.f1, Long.toString(1_000_000_000_000_000_000L + value.f2).repeat(VALUE_REPEATS));
            if (before != null && !before.startsWith("1")) {
                out.collect(value.f2);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        long size = Long.parseLong(arguments[4]);
        long keys = size / ENTRIES_PER_KEY;
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.type", "rocksdb");
        configuration.setString("execution.checkpointing.incremental", "true");
        configuration.setString("execution.checkpointing.interval", arguments[0]);
        configuration.setString("execution.checkpointing.dir", "file://" + arguments[1]);
        configuration.setString("taskmanager.memory.managed.size", arguments[3]);
        if (arguments[6].equals("tuned")) {
            // Without them look-ups of entries that are not there read from disk, and filters do not stay in memory.
            configuration.setString("state.backend.rocksdb.use-bloom-filter", "true");
            configuration.setString("state.backend.rocksdb.memory.partitioned-index-filters", "true");
        }
        configuration.setString("rest.bind-port", "0");
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(arguments[2]), configuration);
        // Each of the two readers has a range of numbers, as Millpond's: they come interleaved.
        environment
                .fromSource(
                        new NumberSequenceSource(0, Long.parseLong(arguments[5]) - 1),
                        WatermarkStrategy.noWatermarks(),
                        "numbers")
                .map(number -> new Tuple3<>(
                        "u" + number * STRIDE % keys, "ad-" + number / keys % ENTRIES_PER_KEY, number))
                .returns(Types.TUPLE(Types.STRING, Types.STRING, Types.LONG))
                .keyBy(value -> value.f0, Types.STRING)
                .process(new Touch())
                .returns(Types.LONG)
                .sinkTo(new DiscardingSink<>());
        long started = System.nanoTime();
        environment.execute("state");
        System.out.println("{\"seconds\": " + (System.nanoTime() - started) / 1e9 + "}");
    }
}
