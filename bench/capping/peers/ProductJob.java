import java.io.IOException;
import java.io.Serializable;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.operators.ProcessingTimeService;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.tuple.Tuple6;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;

/** Frequency capping from Kafka to Redis in Flink. Arguments: Kafka's servers, Redis' port, rules, checkpoint
 * interval, checkpoint folder, parallelism, how late views may be in ms, "end" or "live", then a topic for each run.
 * Rules: level:limit:window[:country], separated by commas; a window is a number of ms, or a time zone for
 * calendar days. Prints for each run the seconds until all views were counted and written. A view counts at once, and a
 * timer for each view and rule ends it. */
public class ProductJob {
    /** When event time came to its end, because the topic did: timers that fire then are no part of the job. */
    static volatile long drainedAtNs, drainedUntilNs;


    static class Rule implements Serializable {
        final String level;
        final int limit;
        final long lengthMs;
        final String zone;
        final String country;

        Rule(String text) {
            String[] parts = text.split(":");
            level = parts[0];
            limit = Integer.parseInt(parts[1]);
            boolean rolling = Character.isDigit(parts[2].charAt(0));
            lengthMs = rolling ? Long.parseLong(parts[2]) : 0;
            zone = rolling ? null : parts[2];
            country = parts.length > 3 ? parts[3] : null;
        }

        String member(Tuple6<String, String, String, String, String, Long> view) {
            if (country != null && !country.equals(view.f4)) {
                return null;
            }
            String id = level.equals("ad") ? view.f1 : level.equals("campaign") ? view.f2 : view.f3;
            return id == null ? null : level + ":" + id;
        }

        long expiry(long timeMs, ZoneId zoneId) {
            if (zone == null) {
                return timeMs + lengthMs;
            }
            return Instant.ofEpochMilli(timeMs).atZone(zoneId).toLocalDate().plusDays(1)
                    .atStartOfDay(zoneId).toInstant().toEpochMilli();
        }
    }

    public static class Read
            implements DeserializationSchema<Tuple6<String, String, String, String, String, Long>> {
        private transient ObjectMapper mapper;

        @Override
        public void open(InitializationContext context) {
            mapper = new ObjectMapper();
        }

        @Override
        public Tuple6<String, String, String, String, String, Long> deserialize(byte[] message)
                throws IOException {
            JsonNode record = mapper.readTree(message);
            return new Tuple6<>(
                    record.get("user_no").asText(), record.get("da_id").asText(), text(record, "campaign_id"),
                    text(record, "advertiser_id"), text(record, "country"), record.get("log_time").asLong());
        }

        private static String text(JsonNode record, String name) {
            JsonNode found = record.get(name);
            return found == null ? "" : found.asText();
        }

        @Override
        public boolean isEndOfStream(Tuple6<String, String, String, String, String, Long> view) {
            return false;
        }

        @Override
        public TypeInformation<Tuple6<String, String, String, String, String, Long>> getProducedType() {
            return Types.TUPLE(Types.STRING, Types.STRING, Types.STRING, Types.STRING, Types.STRING, Types.LONG);
        }
    }

    public static class Cap extends KeyedProcessFunction<
            String, Tuple6<String, String, String, String, String, Long>, Tuple3<String, String, Boolean>> {
        private final Rule[] rules;
        private transient ZoneId[] zones;
        private transient MapState<String, Integer> counts;
        private transient MapState<Long, List<String>> ends;

        Cap(Rule[] rules) {
            this.rules = rules;
        }

        @Override
        public void open(OpenContext context) {
            counts = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("counts", Types.STRING, Types.INT));
            ends = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("ends", Types.LONG, Types.LIST(Types.STRING)));
            zones = new ZoneId[rules.length];
            for (int i = 0; i < rules.length; i++) {
                zones[i] = rules[i].zone == null ? null : ZoneId.of(rules[i].zone);
            }
        }

        @Override
        public void processElement(
                Tuple6<String, String, String, String, String, Long> view, Context context,
                Collector<Tuple3<String, String, Boolean>> out) throws Exception {
            for (int i = 0; i < rules.length; i++) {
                String member = rules[i].member(view);
                if (member == null) {
                    continue;
                }
                long endMs = rules[i].expiry(view.f5, zones[i]);
                if (endMs <= context.timerService().currentWatermark()) {
                    continue;
                }
                Integer before = counts.get(member);
                int count = (before == null ? 0 : before) + 1;
                counts.put(member, count);
                List<String> known = ends.get(endMs);
                List<String> ending = new ArrayList<>(known == null ? List.of() : known);
                if (known == null) {
                    context.timerService().registerEventTimeTimer(endMs);
                }
                ending.add(member);
                ends.put(endMs, ending);
                if (count == rules[i].limit) {
                    out.collect(new Tuple3<>(view.f0, member, true));
                }
            }
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<Tuple3<String, String, Boolean>> out)
                throws Exception {
            if (context.timerService().currentWatermark() == Long.MAX_VALUE) {
                drainedUntilNs = System.nanoTime();
                if (drainedAtNs == 0) {
                    drainedAtNs = drainedUntilNs;
                }
                return;
            }
            List<String> ending = ends.get(timestamp);
            if (ending == null) {
                return;
            }
            ends.remove(timestamp);
            for (String member : ending) {
                int count = counts.get(member) - 1;
                if (count > 0) {
                    counts.put(member, count);
                } else {
                    counts.remove(member);
                }
                if (count == limit(member) - 1) {
                    out.collect(new Tuple3<>(context.getCurrentKey(), member, false));
                }
            }
        }

        private int limit(String member) {
            for (Rule rule : rules) {
                if (member.startsWith(rule.level + ":")) {
                    return rule.limit;
                }
            }
            throw new IllegalStateException(member);
        }
    }

    /** Pipelined: when there are many, when a tenth of a second has passed, and with each checkpoint. */
    public static class RedisSink implements Sink<Tuple3<String, String, Boolean>> {
        private final int port;

        RedisSink(int port) {
            this.port = port;
        }

        @Override
        public SinkWriter<Tuple3<String, String, Boolean>> createWriter(WriterInitContext context) {
            Jedis jedis = new Jedis("127.0.0.1", port);
            Pipeline pipeline = jedis.pipelined();
            ProcessingTimeService timers = context.getProcessingTimeService();
            return new SinkWriter<>() {
                private int waiting;

                {
                    again();
                }

                private void again() {
                    timers.registerTimer(timers.getCurrentProcessingTime() + 100, time -> {
                        flush(false);
                        again();
                    });
                }

                @Override
                public void write(Tuple3<String, String, Boolean> change, Context own) {
                    String key = "cap:{" + change.f0 + "}";
                    if (change.f2) {
                        pipeline.sadd(key, change.f1);
                    } else {
                        pipeline.srem(key, change.f1);
                    }
                    if (++waiting >= 1000) {
                        flush(false);
                    }
                }

                @Override
                public void flush(boolean endOfInput) {
                    if (waiting > 0) {
                        pipeline.sync();
                        waiting = 0;
                    }
                }

                @Override
                public void close() {
                    pipeline.close();
                    jedis.close();
                }
            };
        }
    }

    public static void main(String[] arguments) throws Exception {
        String[] texts = arguments[2].split(",");
        Rule[] rules = new Rule[texts.length];
        for (int i = 0; i < texts.length; i++) {
            rules[i] = new Rule(texts[i]);
        }
        for (int run = 8; run < arguments.length; run++) {
            Configuration configuration = new Configuration();
            configuration.setString("state.backend.type", "hashmap");
            configuration.setString("execution.checkpointing.interval", arguments[3]);
            configuration.setString("execution.checkpointing.dir", "file://" + arguments[4] + "/" + run);
            configuration.setString("taskmanager.memory.managed.size", "64m");
            configuration.setString("rest.bind-port", "0");
            StreamExecutionEnvironment environment =
                    StreamExecutionEnvironment.createLocalEnvironment(Integer.parseInt(arguments[5]), configuration);
            KafkaSourceBuilder<Tuple6<String, String, String, String, String, Long>> source =
                    KafkaSource.<Tuple6<String, String, String, String, String, Long>>builder()
                            .setBootstrapServers(arguments[0])
                            .setTopics(arguments[run])
                            .setGroupId("flink-" + run + "-" + System.nanoTime())
                            .setStartingOffsets(OffsetsInitializer.earliest())
                            .setValueOnlyDeserializer(new Read());
            if (arguments[7].equals("end")) {
                source = source.setBounded(OffsetsInitializer.latest());
            }
            environment
                    .fromSource(
                            source.build(),
                            WatermarkStrategy
                                    .<Tuple6<String, String, String, String, String, Long>>forBoundedOutOfOrderness(
                                            Duration.ofMillis(Long.parseLong(arguments[6])))
                                    .withTimestampAssigner((view, time) -> view.f5),
                            "views")
                    .keyBy(view -> view.f0, Types.STRING)
                    .process(new Cap(rules))
                    .returns(Types.TUPLE(Types.STRING, Types.STRING, Types.BOOLEAN))
                    .sinkTo(new RedisSink(Integer.parseInt(arguments[1])));
            drainedAtNs = drainedUntilNs = 0;
            long started = System.nanoTime();
            environment.execute("capping");
            double drained = (drainedUntilNs - drainedAtNs) / 1e9;
            double seconds = (System.nanoTime() - started) / 1e9 - drained;
            System.out.println("{\"seconds\": " + seconds + ", \"drained\": " + drained + "}");
        }
    }
}
