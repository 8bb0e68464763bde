// A Kafka Streams application with exactly_once_v2, to be killed at any moment: counts and sums by another key than that
// of its input, by way of a repartition topic and a state store, and writes each new total.
//   ExactlyOnce SERVERS STATE-FOLDER APPLICATION-ID INPUT OUTPUT
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.*;

public class ExactlyOnce {
    public static void main(String[] arguments) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[3])
            .groupBy((key, number) -> "k" + Long.parseLong(number) % 7)
            .aggregate(() -> "0/0", (key, number, total) -> {
                String[] parts = total.split("/");
                return (Long.parseLong(parts[0]) + 1) + "/" + (Long.parseLong(parts[1]) + Long.parseLong(number));
            }, Materialized.as("totals"))
            .toStream()
            .to(arguments[4]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", arguments[1]);
        settings.put("application.id", arguments[2]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("commit.interval.ms", "100");
        settings.put("statestore.cache.max.bytes", "0"); // each new total is written, so that each can be checked
        settings.put("replication.factor", "-1");
        settings.put("num.stream.threads", "2");
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("consumer.session.timeout.ms", "6000");
        settings.put("consumer.heartbeat.interval.ms", "500");
        settings.put("producer.transaction.timeout.ms", "10000");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(problem -> {
            System.out.println("replaces a thread: " + problem + ", " + problem.getCause());
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> {
            System.out.println(now);
            if (now == KafkaStreams.State.ERROR) Runtime.getRuntime().halt(1);
        });
        streams.start();
    }
}
