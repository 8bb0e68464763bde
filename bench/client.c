/* A load generator on librdkafka, so that the client's own cost is that of C.
 *
 *   client produce  SERVERS TOPIC PARTITIONS COUNT SIZE BATCH_BYTES CODEC ACKS    ACKS may be "idempotent"
 *   client consume  SERVERS TOPIC PARTITIONS COUNT
 *   client requests SERVERS TOPIC COUNT SIZE            one message per request, five in flight
 *   client rate     SERVERS TOPIC COUNT SIZE RATE ACKS  latency at a steady rate, linger 0
 *   client spin     SERVERS TOPIC COUNT SIZE RATE ACKS  the same, by a client that never sleeps
 *   client serial   SERVERS TOPIC COUNT SIZE ACKS       one message at a time
 *   client transactions SERVERS TOPIC PARTITIONS COUNT MESSAGES SIZE
 *                                                       one transaction after the other; the latency is the commit's
 *
 * Prints one line of JSON. librdkafka is the one inside the confluent-kafka wheel, which ships no header: the few
 * functions used are declared here; their binary interface has not changed since 0.9, that of transactions since 1.4. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} rd_kafka_message_t;

extern rd_kafka_conf_t *rd_kafka_conf_new(void);
extern int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
extern void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
extern rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
extern rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, rd_kafka_topic_conf_t *);
extern int rd_kafka_produce(rd_kafka_topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
extern int rd_kafka_poll(rd_kafka_t *, int);
extern int rd_kafka_flush(rd_kafka_t *, int);
extern int rd_kafka_outq_len(rd_kafka_t *);
typedef struct rd_kafka_error_s rd_kafka_error_t;
extern const char *rd_kafka_error_string(const rd_kafka_error_t *);
extern rd_kafka_error_t *rd_kafka_init_transactions(rd_kafka_t *, int);
extern rd_kafka_error_t *rd_kafka_begin_transaction(rd_kafka_t *);
extern rd_kafka_error_t *rd_kafka_commit_transaction(rd_kafka_t *, int);
extern rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *);
extern int rd_kafka_consume_start_queue(rd_kafka_topic_t *, int32_t, int64_t, rd_kafka_queue_t *);
extern ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
extern void rd_kafka_message_destroy(rd_kafka_message_t *);

enum { PRODUCER = 0, CONSUMER = 1, COPY = 2, QUEUE_FULL = -184, EARLIEST = -2 };

static volatile int64_t done, failed; /* written by the thread that polls alone */
static double *latencies;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque) {
    (void)rk, (void)opaque;
    if (m->err)
        failed++;
    else if (latencies && m->_private)
        latencies[done] = now() - *(double *)m->_private;
    free(m->_private);
    done++;
}

static void set(rd_kafka_conf_t *conf, const char *key, const char *value) {
    char problem[256];
    if (rd_kafka_conf_set(conf, key, value, problem, sizeof problem)) {
        fprintf(stderr, "%s\n", problem);
        exit(2);
    }
}

static rd_kafka_t *client(int kind, rd_kafka_conf_t *conf, const char *servers) {
    char problem[256];
    set(conf, "bootstrap.servers", servers);
    set(conf, "log_level", "2");
    rd_kafka_t *rk = rd_kafka_new(kind, conf, problem, sizeof problem);
    if (!rk) {
        fprintf(stderr, "%s\n", problem);
        exit(2);
    }
    return rk;
}

static rd_kafka_conf_t *producer_conf(const char *acks) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    if (!strcmp(acks, "idempotent"))
        set(conf, "enable.idempotence", "true"); /* and with it acks=all and five requests in flight */
    else
        set(conf, "acks", acks);
    set(conf, "queue.buffering.max.messages", "500000");
    set(conf, "queue.buffering.max.kbytes", "262144");
    return conf;
}

static void send_one(rd_kafka_t *rk, rd_kafka_topic_t *topic, int partition, char *value, size_t size, void *stamp) {
    while (rd_kafka_produce(topic, partition, COPY, value, size, NULL, 0, stamp))
        rd_kafka_poll(rk, 1);
}

/* The first message makes the client connect and learn the topic: not part of what is measured. */
static void warm(rd_kafka_t *rk, rd_kafka_topic_t *topic, int partitions, char *value, size_t size) {
    for (int p = 0; p < partitions; p++)
        send_one(rk, topic, p, value, size, NULL);
    while (done < partitions)
        rd_kafka_poll(rk, 10);
    done = failed = 0;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void report(double seconds, int64_t count) {
    printf("{\"seconds\": %.6f, \"count\": %lld, \"failed\": %lld", seconds, (long long)count, (long long)failed);
    if (latencies) {
        qsort(latencies, count, sizeof *latencies, by_size);
        printf(", \"p50\": %.6f, \"p99\": %.6f, \"p999\": %.6f", latencies[count / 2], latencies[count * 99 / 100],
               latencies[count * 999 / 1000]);
    }
    printf("}\n");
    fflush(stdout);
    _Exit(failed ? 1 : 0); /* librdkafka's own clean-up would only delay the next run */
}

static void *poll_on(void *rk) {
    for (;;)
        rd_kafka_poll(rk, 100);
    return NULL;
}

/* As a service sends: it sleeps until a message is due, and a thread of its own waits for the reports. */
static void send_at_rate(rd_kafka_t *rk, rd_kafka_topic_t *topic, int64_t count, double rate, char *value, size_t size) {
    pthread_t poller;
    pthread_create(&poller, NULL, poll_on, rk);
    prctl(PR_SET_TIMERSLACK, 1000);
    double start = now();
    for (int64_t i = 0; i < count; i++) {
        double at = start + i / rate;
        struct timespec due = {(time_t)at, (long)((at - (time_t)at) * 1e9)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        double *stamp = malloc(sizeof *stamp);
        *stamp = now();
        while (rd_kafka_produce(topic, 0, COPY, value, size, NULL, 0, stamp))
            clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 100000}, NULL);
    }
    while (done < count)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 1000000}, NULL);
    report(now() - start, count);
}

/* As a script sends: one thread that asks for the time and for reports in turn, and so takes a core for itself. */
static void spin_at_rate(rd_kafka_t *rk, rd_kafka_topic_t *topic, int64_t count, double rate, char *value, size_t size) {
    double start = now();
    for (int64_t i = 0; i < count; i++) {
        while (now() < start + i / rate)
            rd_kafka_poll(rk, 0);
        double *stamp = malloc(sizeof *stamp);
        *stamp = now();
        send_one(rk, topic, 0, value, size, stamp);
    }
    while (done < count)
        rd_kafka_poll(rk, 10);
    report(now() - start, count);
}

static void check(rd_kafka_error_t *error) {
    if (error) {
        fprintf(stderr, "%s\n", rd_kafka_error_string(error));
        exit(2);
    }
}

/* The messages are acknowledged first, so that the commit is timed alone. Returns how long it took. */
static double transaction(rd_kafka_t *rk, rd_kafka_topic_t *topic, int partitions, int messages, char *value,
                          size_t size) {
    check(rd_kafka_begin_transaction(rk));
    for (int i = 0; i < messages; i++)
        send_one(rk, topic, i % partitions, value, size, NULL);
    rd_kafka_flush(rk, 60000);
    double start = now();
    check(rd_kafka_commit_transaction(rk, 60000));
    return now() - start;
}

static void run_transactions(const char *servers, const char *name, char **a) {
    int partitions = atoi(a[4]), messages = atoi(a[6]);
    int64_t count = atoll(a[5]);
    size_t size = atoi(a[7]);
    char *value = calloc(1, size);
    rd_kafka_conf_t *conf = producer_conf("idempotent");
    set(conf, "transactional.id", name);
    rd_kafka_t *rk = client(PRODUCER, conf, servers);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, name, NULL);
    check(rd_kafka_init_transactions(rk, 60000));
    transaction(rk, topic, partitions, partitions, value, size); /* connects, and learns the topic */
    double *commits = malloc(count * sizeof *commits);
    double start = now();
    for (int64_t i = 0; i < count; i++)
        commits[i] = transaction(rk, topic, partitions, messages, value, size);
    double seconds = now() - start;
    latencies = commits;
    report(seconds, count);
}

int main(int n, char **a) {
    if (n < 5)
        return 2;
    const char *mode = a[1], *servers = a[2], *name = a[3];
    if (!strcmp(mode, "consume")) {
        int partitions = atoi(a[4]);
        int64_t count = atoll(a[5]), got = 0;
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set(conf, "fetch.wait.max.ms", "100");
        set(conf, "queued.min.messages", "1000000");
        rd_kafka_t *rk = client(CONSUMER, conf, servers);
        rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, name, NULL);
        rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
        for (int p = 0; p < partitions; p++)
            rd_kafka_consume_start_queue(topic, p, EARLIEST, queue);
        static rd_kafka_message_t *messages[10000];
        double start = 0;
        while (got < count) {
            ssize_t found = rd_kafka_consume_batch_queue(queue, 1000, messages, 10000);
            for (ssize_t i = 0; i < found; i++) {
                if (!messages[i]->err) {
                    if (!got)
                        start = now();
                    got++;
                }
                rd_kafka_message_destroy(messages[i]);
            }
        }
        report(now() - start, got);
    }
    if (!strcmp(mode, "produce")) {
        int partitions = atoi(a[4]);
        int64_t count = atoll(a[5]);
        size_t size = atoi(a[6]);
        char *value = malloc(size);
        for (size_t i = 0; i < size; i++)
            value[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[(i * 7 + i / 11) % 36];
        rd_kafka_conf_t *conf = producer_conf(a[9]);
        set(conf, "batch.size", a[7]);
        set(conf, "batch.num.messages", "100000");
        set(conf, "linger.ms", "20");
        set(conf, "compression.codec", a[8]);
        rd_kafka_t *rk = client(PRODUCER, conf, servers);
        rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, name, NULL);
        warm(rk, topic, partitions, value, size);
        double start = now();
        for (int64_t i = 0; i < count; i++) {
            send_one(rk, topic, i % partitions, value, size, NULL);
            if (i % 1000 == 0)
                rd_kafka_poll(rk, 0);
        }
        while (done < count)
            rd_kafka_poll(rk, 10);
        report(now() - start, count);
    }
    if (!strcmp(mode, "transactions"))
        run_transactions(servers, name, a);
    int64_t count = atoll(a[4]);
    size_t size = atoi(a[5]);
    char *value = calloc(1, size);
    latencies = malloc((count + 16) * sizeof *latencies);
    rd_kafka_conf_t *conf = producer_conf(!strcmp(mode, "requests") ? "1" : a[n - 1]);
    set(conf, "linger.ms", "0");
    set(conf, "socket.nagle.disable", "true");
    if (!strcmp(mode, "requests")) {
        set(conf, "batch.num.messages", "1");
        set(conf, "max.in.flight", "5");
    }
    rd_kafka_t *rk = client(PRODUCER, conf, servers);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, name, NULL);
    warm(rk, topic, 1, value, size);
    if (!strcmp(mode, "rate"))
        send_at_rate(rk, topic, count, atof(a[6]), value, size);
    if (!strcmp(mode, "spin"))
        spin_at_rate(rk, topic, count, atof(a[6]), value, size);
    double start = now();
    for (int64_t i = 0; i < count; i++) {
        double *stamp = malloc(sizeof *stamp);
        *stamp = now();
        send_one(rk, topic, 0, value, size, stamp);
        if (!strcmp(mode, "serial"))
            while (done <= i)
                rd_kafka_poll(rk, 10);
        else if (i % 100 == 0)
            rd_kafka_poll(rk, 0);
    }
    while (done < count)
        rd_kafka_poll(rk, 10);
    report(now() - start, count);
    return 0;
}
