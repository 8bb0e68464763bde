// Kafka's own Java clients against a broker: produce with every codec, groups, offsets, admin, errors.
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

public class Conformance {
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

    static KafkaProducer<String, String> producer(String codec, boolean idempotent) {
        Properties p = common();
        p.put("compression.type", codec);
        p.put("enable.idempotence", String.valueOf(idempotent));
        p.put("acks", "all");
        p.put("linger.ms", "5");
        return new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String group, String assignor) {
        Properties p = common();
        p.put("group.id", group);
        p.put("auto.offset.reset", "earliest");
        p.put("enable.auto.commit", "false");
        p.put("session.timeout.ms", "6000");
        p.put("heartbeat.interval.ms", "300");
        p.put("partition.assignment.strategy", assignor);
        return new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer());
    }

    static List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> c, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + 30_000;
        while (found.size() < count && System.currentTimeMillis() < deadline)
            c.poll(Duration.ofMillis(200)).forEach(found::add);
        return found;
    }

    static Throwable failure(org.apache.kafka.common.KafkaFuture<?> future) throws InterruptedException {
        try {
            future.get();
            return null;
        } catch (ExecutionException e) {
            return e.getCause();
        }
    }

    /** Brokers of a cluster learn of a change one after the other. */
    static void eventually(Callable<Boolean> condition, String what) throws Exception {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (true) {
            try {
                if (condition.call()) break;
            } catch (ExecutionException e) {
                if (System.nanoTime() > deadline) throw e;
            }
            if (System.nanoTime() > deadline) throw new AssertionError(what);
            Thread.sleep(10);
        }
        check(true, what);
    }

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        try (Admin admin = Admin.create(common())) {
            admin(admin);
            codecs(admin);
            groups(admin);
            offsets(admin);
        }
        System.out.println("all ok");
        System.exit(0);
    }

    static void admin(Admin admin) throws Exception {
        int brokers = servers.split(",").length;
        check(admin.describeCluster().nodes().get().size() == brokers, "every node");
        admin.createTopics(List.of(new NewTopic("j-admin", 3, (short) -1).configs(Map.of("retention.ms", "5000")))).all().get();
        eventually(() -> admin.describeTopics(List.of("j-admin")).allTopicNames().get().get("j-admin").partitions().size() == 3, "describeTopics");
        check(failure(admin.createTopics(List.of(new NewTopic("j-admin", 1, (short) -1))).all()) instanceof TopicExistsException, "exists");
        check(failure(admin.createTopics(List.of(new NewTopic("j bad", 1, (short) -1))).all()) instanceof InvalidTopicException, "bad name");
        check(failure(admin.createTopics(List.of(new NewTopic("j-rf", 1, (short) 9))).all()) instanceof InvalidReplicationFactorException, "factor");
        check(failure(admin.createTopics(List.of(new NewTopic("j-cfg", 1, (short) -1).configs(Map.of("no.such", "1")))).all()) instanceof InvalidConfigurationException, "config");
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, "j-admin");
        eventually(() -> admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value().equals("5000"), "describeConfigs");
        admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "6000"), AlterConfigOp.OpType.SET)))).all().get();
        eventually(() -> admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value().equals("6000"), "altered");
        admin.createPartitions(Map.of("j-admin", NewPartitions.increaseTo(5))).all().get();
        eventually(() -> admin.describeTopics(List.of("j-admin")).allTopicNames().get().get("j-admin").partitions().size() == 5, "createPartitions");
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        check(!admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).isEmpty(), "describeLogDirs");
        check(admin.describeFeatures().featureMetadata().get().finalizedFeatures().containsKey("metadata.version"), "features");
        check(admin.describeMetadataQuorum().quorumInfo().get().voters().size() == brokers, "quorum");
        admin.deleteTopics(List.of("j-admin")).all().get();
        eventually(() -> !admin.listTopics().names().get().contains("j-admin"), "deleteTopics");
    }

    static void codecs(Admin admin) throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = "j-" + codec;
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) -1))).all().get();
            try (KafkaProducer<String, String> p = producer(codec, codec.length() % 2 == 0)) {
                for (int i = 0; i < 200; i++)
                    p.send(new ProducerRecord<>(topic, 0, 1_700_000_000_000L + i, "k" + i, "v" + i, List.of(new RecordHeader("h", new byte[] {1}))));
                p.flush();
            }
            try (KafkaConsumer<String, String> c = consumer("none", "org.apache.kafka.clients.consumer.RangeAssignor")) {
                TopicPartition place = new TopicPartition(topic, 0);
                c.assign(List.of(place));
                c.seekToBeginning(List.of(place));
                List<ConsumerRecord<String, String>> found = read(c, 200);
                check(found.size() == 200 && found.get(199).value().equals("v199"), codec);
                check(found.get(7).headers().lastHeader("h") != null && found.get(7).timestamp() == 1_700_000_000_007L, codec + " headers and times");
                check(c.offsetsForTimes(Map.of(place, 1_700_000_000_100L)).get(place).offset() == 100, codec + " offset by time");
                check(c.endOffsets(List.of(place)).get(place) == 200, codec + " end");
            }
        }
    }

    static void groups(Admin admin) throws Exception {
        admin.createTopics(List.of(new NewTopic("j-group", 4, (short) -1))).all().get();
        try (KafkaProducer<String, String> p = producer("none", true)) {
            for (int i = 0; i < 400; i++) p.send(new ProducerRecord<>("j-group", i % 4, null, "v" + i));
            p.flush();
        }
        for (String assignor : List.of("RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor")) {
            String group = "g-" + assignor;
            KafkaConsumer<String, String> a = consumer(group, "org.apache.kafka.clients.consumer." + assignor);
            KafkaConsumer<String, String> b = consumer(group, "org.apache.kafka.clients.consumer." + assignor);
            a.subscribe(List.of("j-group"));
            check(read(a, 400).size() == 400, assignor + " reads all");
            a.commitSync();
            b.subscribe(List.of("j-group"));
            long deadline = System.currentTimeMillis() + 30_000;
            while ((a.assignment().size() != 2 || b.assignment().size() != 2) && System.currentTimeMillis() < deadline) {
                a.poll(Duration.ofMillis(100));
                b.poll(Duration.ofMillis(100));
            }
            check(a.assignment().size() == 2 && b.assignment().size() == 2, assignor + " shares");
            ConsumerGroupDescription d = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            check(d.members().size() == 2, assignor + " described");
            b.close();
            deadline = System.currentTimeMillis() + 30_000;
            while (a.assignment().size() != 4 && System.currentTimeMillis() < deadline) a.poll(Duration.ofMillis(100));
            check(a.assignment().size() == 4, assignor + " takes over");
            a.close();
        }
    }

    static void offsets(Admin admin) throws Exception {
        String group = "g-RangeAssignor";
        Map<TopicPartition, OffsetAndMetadata> committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        check(committed.values().stream().allMatch(o -> o.offset() == 100) && committed.size() == 4, "committed offsets");
        TopicPartition place = new TopicPartition("j-group", 0);
        admin.alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(42))).all().get();
        check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(place).offset() == 42, "altered offset");
        admin.deleteConsumerGroupOffsets(group, Set.of(place)).all().get();
        check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(place) == null, "deleted offset");
        Set<String> ids = admin.listGroups().all().get().stream().map(GroupListing::groupId).collect(Collectors.toSet());
        check(ids.contains(group), "listGroups");
        admin.deleteConsumerGroups(List.of(group)).all().get();
        check(failure(admin.deleteConsumerGroups(List.of(group)).all()) instanceof GroupIdNotFoundException, "deleted group");
        admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(10))).all().get();
        ListOffsetsResult.ListOffsetsResultInfo first = admin.listOffsets(Map.of(place, OffsetSpec.earliest())).partitionResult(place).get();
        check(first.offset() == 10, "deleteRecords");
        check(admin.describeProducers(List.of(place)).all().get().get(place).activeProducers().size() == 1, "describeProducers");
    }
}
