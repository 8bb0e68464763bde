// Transactions on demand, through a proxy that disturbs them: reads commands from standard input and answers each with
// lines and "done".
//   plain TOPIC PARTITIONS NAME COUNT SEED   transactions of one producer; answers with "NUMBER OUTCOME" of each
//   copy SOURCE TARGET GROUP NAME            copies all that is in the source, with offsets, in transactions
import java.io.*;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class TransactionLoad {
    static final int PATIENCE_MS = 180_000;
    static String servers;
    static String timeoutMs;

    static KafkaProducer<String, String> producer(String name) {
        Properties p = new Properties();
        p.put("bootstrap.servers", servers);
        p.put("transactional.id", name);
        p.put("client.id", name);
        p.put("transaction.timeout.ms", timeoutMs);
        p.put("batch.size", "200");
        p.put("linger.ms", "0");
        KafkaProducer<String, String> producer = new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
        try {
            producer.initTransactions();
        } catch (RuntimeException e) {
            producer.close(Duration.ZERO);
            throw e;
        }
        return producer;
    }

    static boolean isFatal(KafkaException e) {
        return e instanceof ProducerFencedException || e instanceof InvalidProducerEpochException
            || e instanceof OutOfOrderSequenceException || e instanceof AuthorizationException || e instanceof ApplicationRecoverableException;
    }

    static void plain(String topic, int partitions, String name, int count, long seed) {
        Random chance = new Random(seed);
        KafkaProducer<String, String> p = null;
        for (int number = 0; number < count; number++) {
            boolean commit = chance.nextInt(4) != 0, mayBeCommitted = false;
            String outcome = "aborted";
            try {
                if (p == null) p = producer(name);
                p.beginTransaction();
                for (int i = 0; i <= number % 7; i++)
                    p.send(new ProducerRecord<>(topic, (number + i) % partitions, null, name + "/" + number + "/" + i));
                if (commit) {
                    mayBeCommitted = true;
                    p.commitTransaction();
                    outcome = "committed";
                } else {
                    p.abortTransaction();
                }
            } catch (KafkaException e) {
                System.err.println(name + "/" + number + ": " + e);
                boolean ended = false;
                if (p != null && !isFatal(e)) {
                    try {
                        p.abortTransaction();
                        ended = true;
                    } catch (KafkaException again) {
                        System.err.println(name + "/" + number + ": not aborted: " + again);
                    }
                }
                if (!ended) {
                    if (mayBeCommitted) outcome = "unknown";
                    if (p != null) p.close(Duration.ZERO);
                    p = null;
                }
            }
            System.out.println(number + " " + outcome);
        }
        if (p != null) p.close();
    }

    static void copy(String source, String target, String group, String name) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "20");
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        KafkaProducer<String, String> p = null;
        try (KafkaConsumer<String, String> c = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            List<TopicPartition> places = c.partitionsFor(source).stream().map(i -> new TopicPartition(source, i.partition())).toList();
            Map<TopicPartition, Long> ends = c.endOffsets(places);
            c.subscribe(List.of(source));
            while (c.assignment().size() < places.size() || places.stream().anyMatch(each -> c.position(each) < ends.get(each))) {
                if (System.currentTimeMillis() > deadline) throw new IllegalStateException(source + " cannot be copied");
                try {
                    if (p == null) p = producer(name);
                    step(c, p, target);
                } catch (KafkaException e) {
                    System.err.println(name + ": " + e);
                    p = recover(p, e);
                    rewind(c);
                }
            }
        }
        if (p != null) p.close();
    }

    static void step(KafkaConsumer<String, String> c, KafkaProducer<String, String> p, String target) {
        ConsumerRecords<String, String> records = c.poll(Duration.ofMillis(100));
        if (records.isEmpty()) return;
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        p.beginTransaction();
        for (ConsumerRecord<String, String> r : records) {
            p.send(new ProducerRecord<>(target, r.partition(), null, r.value()));
            next.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
        }
        p.sendOffsetsToTransaction(next, c.groupMetadata());
        p.commitTransaction();
    }

    /** The producer, or null where it must be made anew. */
    static KafkaProducer<String, String> recover(KafkaProducer<String, String> p, KafkaException e) {
        if (p == null) return null;
        if (!isFatal(e)) {
            try {
                p.abortTransaction();
                return p;
            } catch (KafkaException again) {
                System.err.println("not aborted: " + again);
            }
        }
        p.close(Duration.ZERO);
        return null;
    }

    static void rewind(KafkaConsumer<String, String> c) {
        Map<TopicPartition, OffsetAndMetadata> committed = c.committed(c.assignment());
        for (TopicPartition each : c.assignment()) {
            OffsetAndMetadata found = committed.get(each);
            c.seek(each, found == null ? 0 : found.offset());
        }
    }

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        timeoutMs = arguments[1];
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("plain")) plain(words[1], Integer.parseInt(words[2]), words[3], Integer.parseInt(words[4]), Long.parseLong(words[5]));
            else copy(words[1], words[2], words[3], words[4]);
            System.out.println("done");
        }
    }
}
