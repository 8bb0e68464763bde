// Kafka's own transactional producer, committed readers and administration of transactions against a broker.
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class Transactions {
    static final long PATIENCE_MS = 90_000;
    static String servers;

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
        System.out.println("ok " + what);
    }

    static Properties common() {
        Properties p = new Properties();
        p.put("bootstrap.servers", servers);
        return p;
    }

    static KafkaProducer<String, String> producer(String id, long timeoutMs) {
        KafkaProducer<String, String> p = uninitialised(id, timeoutMs);
        p.initTransactions();
        return p;
    }

    static KafkaProducer<String, String> uninitialised(String id, long timeoutMs) {
        Properties p = common();
        p.put("transactional.id", id);
        p.put("transaction.timeout.ms", String.valueOf(timeoutMs));
        return new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String group, String isolation) {
        Properties p = common();
        p.put("group.id", group);
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        p.put("isolation.level", isolation);
        return new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
    }

    /** All values up to the end that readers of this isolation level see, over all partitions. */
    static List<String> values(String topic, String isolation) {
        try (KafkaConsumer<String, String> c = consumer("reader", isolation)) {
            List<TopicPartition> places = c.partitionsFor(topic).stream().map(i -> new TopicPartition(topic, i.partition())).toList();
            Map<TopicPartition, Long> ends = c.endOffsets(places);
            c.assign(places);
            c.seekToBeginning(places);
            List<String> found = new ArrayList<>();
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            while (places.stream().anyMatch(place -> c.position(place) < ends.get(place))) {
                if (System.currentTimeMillis() > deadline) throw new AssertionError(topic + " cannot be read to " + ends);
                c.poll(Duration.ofMillis(100)).forEach(r -> found.add(r.value()));
            }
            return found;
        }
    }

    static List<String> committed(String topic) {
        return values(topic, "read_committed");
    }

    static void eventually(Callable<Boolean> condition, String what) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.call()) {
            if (System.currentTimeMillis() > deadline) throw new AssertionError(what);
            Thread.sleep(20);
        }
        check(true, what);
    }

    static Throwable failure(org.apache.kafka.common.KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
            return null;
        } catch (ExecutionException e) {
            return e.getCause();
        }
    }

    static KafkaException refused(Runnable action) {
        try {
            action.run();
            return null;
        } catch (KafkaException e) {
            return e;
        }
    }

    static void send(KafkaProducer<String, String> p, String topic, String... values) {
        for (String value : values) p.send(new ProducerRecord<>(topic, value, value));
        p.flush();
    }

    static String topic(Admin admin, String name) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, 3, (short) -1))).all().get();
        eventually(() -> {
            try {
                return admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().stream().allMatch(i -> i.leader() != null);
            } catch (ExecutionException e) {
                return false;
            }
        }, "topic " + name);
        return name;
    }

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        try (Admin admin = Admin.create(common())) {
            outcomes(admin);
            fencing(admin);
            offsets(admin);
            formerMembers(admin);
            timeouts(admin);
            states(admin);
            hanging(admin);
            fencedByAdministrators(admin);
            manyTransactions(admin);
        }
        System.out.println("all ok");
        System.exit(0);
    }

    static void outcomes(Admin admin) throws Exception {
        String topic = topic(admin, "t-outcomes");
        try (KafkaProducer<String, String> p = producer("t-outcomes", 60_000)) {
            p.beginTransaction();
            send(p, topic, "a", "b", "c");
            check(committed(topic).isEmpty(), "an open transaction is not seen");
            check(values(topic, "read_uncommitted").size() == 3, "but by readers of uncommitted records");
            p.commitTransaction();
            eventually(() -> new HashSet<>(committed(topic)).equals(Set.of("a", "b", "c")), "commit");
            p.beginTransaction();
            send(p, topic, "d", "e", "f");
            p.abortTransaction();
            p.beginTransaction();
            send(p, topic, "g");
            p.commitTransaction();
            eventually(() -> new HashSet<>(committed(topic)).equals(Set.of("a", "b", "c", "g")), "abort");
            p.beginTransaction();
            p.commitTransaction();
            p.beginTransaction();
            p.abortTransaction();
            check(committed(topic).size() == 4, "empty transactions");
        }
    }

    static void fencing(Admin admin) throws Exception {
        String topic = topic(admin, "t-fencing");
        try (KafkaProducer<String, String> first = producer("t-fencing", 60_000)) {
            first.beginTransaction();
            send(first, topic, "of the first");
            try (KafkaProducer<String, String> second = producer("t-fencing", 60_000)) {
                check(committed(topic).isEmpty(), "a second producer ends what the first began");
                second.beginTransaction();
                send(second, topic, "of the second");
                KafkaException problem = refused(() -> {
                    send(first, topic, "of a zombie");
                    first.commitTransaction();
                });
                check(problem instanceof ProducerFencedException || problem instanceof InvalidProducerEpochException, "the first is fenced: " + problem);
                second.commitTransaction();
            }
            eventually(() -> committed(topic).equals(List.of("of the second")), "records of the second only");
        }
    }

    static void offsets(Admin admin) throws Exception {
        String source = topic(admin, "t-source"), target = topic(admin, "t-target");
        try (KafkaProducer<String, String> p = new KafkaProducer<>(common(), new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < 90; i++) p.send(new ProducerRecord<>(source, i % 3, null, "v" + i));
        }
        try (KafkaProducer<String, String> p = producer("t-offsets", 60_000); KafkaConsumer<String, String> c = consumer("t-group", "read_committed")) {
            c.subscribe(List.of(source));
            Map<TopicPartition, OffsetAndMetadata> next = transform(c, p, target);
            p.abortTransaction();
            check(admin.listConsumerGroupOffsets("t-group").partitionsToOffsetAndMetadata().get().isEmpty(), "offsets of an aborted transaction");
            c.seekToBeginning(c.assignment());
            next = transform(c, p, target);
            p.commitTransaction();
            Map<TopicPartition, OffsetAndMetadata> expected = next;
            eventually(() -> committedOffsets(admin).equals(Map.of(0, 30L, 1, 30L, 2, 30L)), "offsets of a committed transaction " + expected.keySet());
            eventually(() -> ends(target, "read_committed").equals(ends(target, "read_uncommitted")), "the transaction ends in every partition");
            List<String> found = committed(target);
            check(found.size() == 90 && new HashSet<>(found).size() == 90, "each record once");
        }
    }

    static Map<Integer, Long> committedOffsets(Admin admin) throws Exception {
        ListConsumerGroupOffsetsOptions stable = new ListConsumerGroupOffsetsOptions().requireStable(true);
        Map<TopicPartition, OffsetAndMetadata> found = admin.listConsumerGroupOffsets("t-group", stable).partitionsToOffsetAndMetadata().get();
        return found.entrySet().stream().collect(Collectors.toMap(e -> e.getKey().partition(), e -> e.getValue().offset()));
    }

    static Map<TopicPartition, OffsetAndMetadata> transform(KafkaConsumer<String, String> c, KafkaProducer<String, String> p, String target) {
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        int count = 0;
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        p.beginTransaction();
        while (count < 90) {
            if (System.currentTimeMillis() > deadline) throw new AssertionError("the source cannot be read");
            for (ConsumerRecord<String, String> r : c.poll(Duration.ofMillis(100))) {
                p.send(new ProducerRecord<>(target, r.partition(), null, r.value()));
                next.put(new TopicPartition(r.topic(), r.partition()), new OffsetAndMetadata(r.offset() + 1));
                count++;
            }
        }
        p.sendOffsetsToTransaction(next, c.groupMetadata());
        return next;
    }

    static void formerMembers(Admin admin) throws Exception {
        String topic = topic(admin, "t-former");
        ConsumerGroupMetadata former;
        try (KafkaConsumer<String, String> c = consumer("t-former", "read_committed")) {
            c.subscribe(List.of(topic));
            long deadline = System.currentTimeMillis() + PATIENCE_MS;
            while (c.assignment().isEmpty() && System.currentTimeMillis() < deadline) c.poll(Duration.ofMillis(100));
            former = c.groupMetadata();
        }
        try (KafkaProducer<String, String> p = producer("t-former", 60_000)) {
            p.beginTransaction();
            KafkaException problem = refused(() -> p.sendOffsetsToTransaction(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)), former));
            if (problem == null) problem = refused(p::commitTransaction);
            check(problem instanceof CommitFailedException, "offsets of a former member are refused: " + problem);
            p.abortTransaction();
            p.beginTransaction();
            send(p, topic, "goes on");
            p.commitTransaction();
        }
        eventually(() -> committed(topic).equals(List.of("goes on")), "the producer goes on after that");
    }

    static void timeouts(Admin admin) throws Exception {
        String topic = topic(admin, "t-timeout");
        try (KafkaProducer<String, String> p = producer("t-timeout", 1000)) {
            p.beginTransaction();
            send(p, topic, "too late");
            eventually(() -> ends(topic, "read_committed").equals(ends(topic, "read_uncommitted")), "a transaction ends after its time-out");
            KafkaException problem = refused(p::commitTransaction);
            check(problem != null, "and cannot be committed then: " + problem);
        }
        check(committed(topic).isEmpty(), "its records are aborted");
        KafkaException problem = refused(() -> producer("t-too-long", 1_000_000).close());
        check(problem != null && problem.getMessage().contains("transaction.max.timeout.ms"), "a time-out beyond the broker's: " + problem);
    }

    static Collection<Long> ends(String topic, String isolation) {
        try (KafkaConsumer<String, String> c = consumer("ends", isolation)) {
            List<TopicPartition> places = c.partitionsFor(topic).stream().map(i -> new TopicPartition(topic, i.partition())).toList();
            return new ArrayList<>(new TreeMap<>(c.endOffsets(places).entrySet().stream().collect(Collectors.toMap(e -> e.getKey().partition(), Map.Entry::getValue))).values());
        }
    }

    static TransactionState state(Admin admin, String id) throws Exception {
        return admin.describeTransactions(List.of(id)).description(id).get().state();
    }

    static void states(Admin admin) throws Exception {
        String topic = topic(admin, "t-states");
        check(failure(admin.describeTransactions(List.of("t-unknown")).description("t-unknown")) instanceof TransactionalIdNotFoundException, "an unknown id");
        try (KafkaProducer<String, String> p = producer("t-states", 60_000)) {
            check(state(admin, "t-states") == TransactionState.EMPTY, "describeTransactions: empty");
            p.beginTransaction();
            p.send(new ProducerRecord<>(topic, 1, "k", "open")).get();
            TransactionDescription d = admin.describeTransactions(List.of("t-states")).description("t-states").get();
            check(d.state() == TransactionState.ONGOING && d.topicPartitions().equals(Set.of(new TopicPartition(topic, 1))), "describeTransactions: ongoing");
            check(d.transactionTimeoutMs() == 60_000 && d.transactionStartTimeMs().isPresent(), "describeTransactions: times");
            ListTransactionsOptions ongoing = new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING)).filterProducerIds(Set.of(d.producerId()));
            check(admin.listTransactions(ongoing).all().get().stream().map(TransactionListing::transactionalId).toList().equals(List.of("t-states")), "listTransactions: filtered");
            Set<String> ids = admin.listTransactions().all().get().stream().map(TransactionListing::transactionalId).collect(Collectors.toSet());
            check(ids.containsAll(Set.of("t-outcomes", "t-fencing", "t-states")), "listTransactions: all");
            ListTransactionsOptions pattern = new ListTransactionsOptions().filterOnTransactionalIdPattern("t-sta.*");
            check(admin.listTransactions(pattern).all().get().size() == 1, "listTransactions: by pattern");
            ListTransactionsOptions old = new ListTransactionsOptions().filterOnDuration(3_600_000);
            check(admin.listTransactions(old).all().get().isEmpty(), "listTransactions: by duration");
            p.commitTransaction();
            eventually(() -> state(admin, "t-states") == TransactionState.COMPLETE_COMMIT, "describeTransactions: committed");
        }
    }

    static void hanging(Admin admin) throws Exception {
        String topic = topic(admin, "t-hanging");
        TopicPartition place = new TopicPartition(topic, 0);
        KafkaProducer<String, String> p = producer("t-hanging", 600_000);
        p.beginTransaction();
        p.send(new ProducerRecord<>(topic, 0, "k", "open")).get();
        ProducerState found = admin.describeProducers(List.of(place)).partitionResult(place).get().activeProducers().get(0);
        check(found.currentTransactionStartOffset().equals(OptionalLong.of(0)), "describeProducers: an open transaction");
        AbortTransactionSpec spec = new AbortTransactionSpec(place, found.producerId(), (short) found.producerEpoch(), found.coordinatorEpoch().orElse(0));
        admin.abortTransaction(spec).all().get();
        eventually(() -> ends(topic, "read_committed").equals(ends(topic, "read_uncommitted")), "abortTransaction");
        check(committed(topic).isEmpty(), "its records are aborted");
        found = admin.describeProducers(List.of(place)).partitionResult(place).get().activeProducers().get(0);
        check(found.currentTransactionStartOffset().isEmpty(), "describeProducers: no open transaction");
        p.close(Duration.ZERO);
    }

    static void fencedByAdministrators(Admin admin) throws Exception {
        String topic = topic(admin, "t-fenced");
        try (KafkaProducer<String, String> p = producer("t-fenced", 60_000)) {
            p.beginTransaction();
            send(p, topic, "never");
            FenceProducersResult result = admin.fenceProducers(List.of("t-fenced", "t-fenced-new"));
            result.all().get();
            check(result.epochId("t-fenced").get() > 0 && result.producerId("t-fenced").get() >= 0, "fenceProducers");
            KafkaException problem = refused(() -> {
                send(p, topic, "never either");
                p.commitTransaction();
            });
            check(problem instanceof ProducerFencedException || problem instanceof InvalidProducerEpochException, "the producer is fenced: " + problem);
        }
        eventually(() -> ends(topic, "read_committed").equals(ends(topic, "read_uncommitted")) && committed(topic).isEmpty(), "its transaction is aborted");
    }

    static void manyTransactions(Admin admin) throws Exception {
        String topic = topic(admin, "t-many");
        List<String> expected = new ArrayList<>();
        try (KafkaProducer<String, String> p = producer("t-many", 60_000)) {
            for (int i = 0; i < 200; i++) {
                p.beginTransaction();
                for (int n = 0; n < 5; n++) p.send(new ProducerRecord<>(topic, n % 3, null, i + "/" + n));
                if (i % 4 == 1) {
                    p.abortTransaction();
                } else {
                    p.commitTransaction();
                    for (int n = 0; n < 5; n++) expected.add(i + "/" + n);
                }
            }
        }
        eventually(() -> ends(topic, "read_committed").equals(ends(topic, "read_uncommitted")), "200 transactions end");
        List<String> found = committed(topic);
        Collections.sort(found);
        Collections.sort(expected);
        check(found.equals(expected), "their records, each once");
    }
}
