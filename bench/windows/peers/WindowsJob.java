import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** The windows jobs in Flink. Arguments: kind, checkpoint interval, checkpoint folder, parallelism, then for each
 * run "output=file,file". Prints the seconds of each run. */
public class WindowsJob {
    public static class Count implements AggregateFunction<Tuple3<String, String, Long>, Long, Long> {
        public Long createAccumulator() { return 0L; }
        public Long add(Tuple3<String, String, Long> view, Long count) { return count + 1; }
        public Long getResult(Long count) { return count; }
        public Long merge(Long a, Long b) { return a + b; }
    }

    public static class Average
            implements AggregateFunction<Tuple3<String, String, Long>, Tuple2<Long, Long>, Double> {
        public Tuple2<Long, Long> createAccumulator() { return new Tuple2<>(0L, 0L); }
        public Tuple2<Long, Long> add(Tuple3<String, String, Long> view, Tuple2<Long, Long> sum) {
            return new Tuple2<>(sum.f0 + view.f2 % 1000, sum.f1 + 1);
        }
        public Double getResult(Tuple2<Long, Long> sum) { return (double) sum.f0 / sum.f1; }
        public Tuple2<Long, Long> merge(Tuple2<Long, Long> a, Tuple2<Long, Long> b) {
            return new Tuple2<>(a.f0 + b.f0, a.f1 + b.f1);
        }
    }

    public static class Line<T> extends ProcessWindowFunction<T, String, String, TimeWindow> {
        public void process(String key, Context context, Iterable<T> results, Collector<String> out) {
            out.collect(key + "," + context.window().getStart() + "," + results.iterator().next());
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (int run = 4; run < arguments.length; run++) {
            Configuration configuration = new Configuration();
            configuration.setString("state.backend.type", "hashmap");
            configuration.setString("execution.checkpointing.interval", arguments[1]);
            configuration.setString("execution.checkpointing.dir", "file://" + arguments[2] + "/" + run);
            configuration.setString("rest.bind-port", "0");
            StreamExecutionEnvironment environment =
                    StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(arguments[3]), configuration);
            String[] parts = arguments[run].split("=");
            String[] files = parts[1].split(",");
            Path[] paths = new Path[files.length];
            for (int i = 0; i < files.length; i++) {
                paths[i] = new Path(files[i]);
            }
            DataStream<Tuple3<String, String, Long>> views = environment
                    .fromSource(
                            FileSource.forRecordStreamFormat(new TextLineInputFormat(), paths).build(),
                            WatermarkStrategy.noWatermarks(),
                            "views")
                    .map(line -> {
                        String[] fields = line.split(",");
                        return new Tuple3<>(fields[0], fields[1], Long.parseLong(fields[2]));
                    })
                    .returns(Types.TUPLE(Types.STRING, Types.STRING, Types.LONG))
                    .assignTimestampsAndWatermarks(
                            WatermarkStrategy
                                    .<Tuple3<String, String, Long>>forBoundedOutOfOrderness(Duration.ofMillis(30_000))
                                    .withTimestampAssigner((view, time) -> view.f2));
            DataStream<String> results;
            if (arguments[0].equals("tumbling")) {
                results = views.keyBy(view -> view.f0, Types.STRING)
                        .window(TumblingEventTimeWindows.of(Duration.ofHours(1)))
                        .aggregate(new Count(), new Line<Long>());
            } else if (arguments[0].equals("sliding")) {
                results = views.keyBy(view -> view.f1, Types.STRING)
                        .window(SlidingEventTimeWindows.of(Duration.ofHours(1), Duration.ofMinutes(1)))
                        .aggregate(new Average(), new Line<Double>());
            } else {
                results = views.keyBy(view -> view.f0, Types.STRING)
                        .window(EventTimeSessionWindows.withGap(Duration.ofHours(6)))
                        .aggregate(new Count(), new Line<Long>());
            }
            results.sinkTo(FileSink.forRowFormat(new Path(parts[0]), new SimpleStringEncoder<String>()).build());
            long started = System.nanoTime();
            environment.execute("windows");
            System.out.println("{\"seconds\": " + (System.nanoTime() - started) / 1e9 + "}");
        }
    }
}
