import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** The capping job in Flink. Arguments: backend, checkpoint interval, checkpoint folder, parallelism, then for
 * each run "output=file,file". Prints the seconds of each run. */
public class CappingJob {
    static final long WINDOW_MS = 5L * 86_400_000;
    static final int CAP = 3;

    public static class Cap extends KeyedProcessFunction<String, Tuple3<String, String, Long>, String> {
        private transient MapState<String, Integer> counts;
        private transient MapState<Long, String> ends;

        @Override
        public void open(OpenContext context) {
            counts = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("counts", Types.STRING, Types.INT));
            ends = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("ends", Types.LONG, Types.STRING));
        }

        @Override
        public void processElement(Tuple3<String, String, Long> view, Context context, Collector<String> out)
                throws Exception {
            Integer before = counts.get(view.f1);
            int count = (before == null ? 0 : before) + 1;
            counts.put(view.f1, count);
            long endsAtMs = view.f2 + WINDOW_MS;
            ends.put(endsAtMs, view.f1);
            context.timerService().registerEventTimeTimer(endsAtMs);
            if (count == CAP) {
                out.collect("cap," + view.f0 + "," + view.f1 + "," + view.f2);
            }
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<String> out) throws Exception {
            String ad = ends.get(timestamp);
            ends.remove(timestamp);
            int count = counts.get(ad) - 1;
            if (count > 0) {
                counts.put(ad, count);
            } else {
                counts.remove(ad);
            }
            if (count == CAP - 1) {
                out.collect("free," + context.getCurrentKey() + "," + ad + "," + timestamp);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (int run = 4; run < arguments.length; run++) {
            Configuration configuration = new Configuration();
            configuration.setString("state.backend.type", arguments[0]);
            configuration.setString("execution.checkpointing.incremental", "true");
            configuration.setString("execution.checkpointing.interval", arguments[1]);
            configuration.setString("execution.checkpointing.dir", "file://" + arguments[2] + "/" + run);
            configuration.setString("taskmanager.memory.managed.size", "1g");
            configuration.setString("rest.bind-port", "0");
            StreamExecutionEnvironment environment =
                    StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(arguments[3]), configuration);
            String[] parts = arguments[run].split("=");
            String[] files = parts[1].split(",");
            Path[] paths = new Path[files.length];
            for (int i = 0; i < files.length; i++) {
                paths[i] = new Path(files[i]);
            }
            TypeInformation<Tuple3<String, String, Long>> type = Types.TUPLE(Types.STRING, Types.STRING, Types.LONG);
            environment
                    .fromSource(
                            FileSource.forRecordStreamFormat(new TextLineInputFormat(), paths).build(),
                            WatermarkStrategy.noWatermarks(),
                            "views")
                    .map(line -> {
                        String[] fields = line.split(",");
                        return new Tuple3<>(fields[0], fields[1], Long.parseLong(fields[2]));
                    })
                    .returns(type)
                    .assignTimestampsAndWatermarks(
                            WatermarkStrategy
                                    .<Tuple3<String, String, Long>>forBoundedOutOfOrderness(Duration.ofMillis(30_000))
                                    .withTimestampAssigner((view, time) -> view.f2))
                    .keyBy(view -> view.f0, Types.STRING)
                    .process(new Cap())
                    .sinkTo(FileSink.forRowFormat(new Path(parts[0]), new SimpleStringEncoder<String>()).build());
            long started = System.nanoTime();
            environment.execute("capping");
            System.out.println("{\"seconds\": " + (System.nanoTime() - started) / 1e9 + "}");
        }
    }
}
