// A Kafka Streams application, at least once: counts words by way of a repartition topic and a changelog.
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;

public class Streams {
    public static void main(String[] arguments) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(p)) {
            admin.createTopics(List.of(new NewTopic("lines", 2, (short) -1), new NewTopic("counts", 2, (short) -1))).all().get();
        }
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < 300; i++) producer.send(new ProducerRecord<>("lines", "k" + i, "alpha beta " + (i % 3 == 0 ? "gamma" : "alpha")));
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as("store"))
            .toStream()
            .to("counts", Produced.with(Serdes.String(), Serdes.Long()));
        Properties settings = new Properties();
        settings.putAll(p);
        settings.put("application.id", "words-" + System.nanoTime());
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("commit.interval.ms", "200");
        settings.put("auto.offset.reset", "earliest");
        settings.put("state.dir", arguments[1]);
        Map<String, Long> counts = new HashMap<>();
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.start();
            p.put("group.id", "counts-reader");
            p.put("auto.offset.reset", "earliest");
            try (KafkaConsumer<String, Long> consumer = new KafkaConsumer<>(p, new StringDeserializer(), new LongDeserializer())) {
                consumer.subscribe(List.of("counts"));
                long deadline = System.currentTimeMillis() + 60_000;
                while (System.currentTimeMillis() < deadline && !Map.of("alpha", 500L, "beta", 300L, "gamma", 100L).equals(counts))
                    consumer.poll(Duration.ofMillis(200)).forEach(r -> counts.put(r.key(), r.value()));
            }
        }
        if (!Map.of("alpha", 500L, "beta", 300L, "gamma", 100L).equals(counts)) throw new AssertionError(counts.toString());
        System.out.println("ok words are counted through a changelog and a repartition topic");
        System.out.println("all ok");
        System.exit(0);
    }
}
