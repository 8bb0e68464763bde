// franz-go against a broker: produce with every codec, groups, offsets, admin, errors.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func check(holds bool, what string) {
	if !holds {
		fmt.Println("FAILED", what)
		os.Exit(1)
	}
	fmt.Println("ok", what)
}

func must(err error, what string) {
	if err != nil {
		fmt.Println("FAILED", what, err)
		os.Exit(1)
	}
}

func client(servers string, options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(servers, ",")...))...)
	must(err, "client")
	return made
}

func read(ctx context.Context, from *kgo.Client, count int) []*kgo.Record {
	var found []*kgo.Record
	for len(found) < count {
		fetches := from.PollFetches(ctx)
		must(fetches.Err(), "fetch")
		found = append(found, fetches.Records()...)
	}
	return found
}

func main() {
	servers := os.Args[1]
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	admin := kadm.NewClient(client(servers))
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		topic := "go-" + name
		_, err := admin.CreateTopic(ctx, 1, -1, nil, topic)
		must(err, "create")
		producer := client(servers, kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic(topic))
		for i := 0; i < 200; i++ {
			record := &kgo.Record{Key: []byte("k"), Value: []byte(fmt.Sprint("v", i)), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}}}
			producer.Produce(ctx, record, func(_ *kgo.Record, err error) { must(err, "produce") })
		}
		must(producer.Flush(ctx), "flush")
		producer.Close()
		consumer := client(servers, kgo.ConsumeTopics(topic))
		found := read(ctx, consumer, 200)
		check(string(found[199].Value) == "v199" && found[3].Headers[0].Key == "h", name)
		consumer.Close()
	}
	_, err := admin.CreateTopic(ctx, 1, -1, nil, "go-none")
	check(errors.Is(err, kerr.TopicAlreadyExists), "exists")
	_, err = admin.CreateTopic(ctx, 1, 9, nil, "go-factor")
	check(errors.Is(err, kerr.InvalidReplicationFactor), "factor")

	_, err = admin.CreateTopic(ctx, 4, -1, map[string]*string{"retention.ms": kadm.StringPtr("5000")}, "go-group")
	must(err, "create")
	producer := client(servers, kgo.DefaultProduceTopic("go-group"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	for i := 0; i < 400; i++ {
		must(producer.ProduceSync(ctx, &kgo.Record{Value: []byte(fmt.Sprint(i))}).FirstErr(), "produce")
	}
	producer.Close()
	options := []kgo.Opt{
		kgo.ConsumerGroup("go-readers"), kgo.ConsumeTopics("go-group"), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(300 * time.Millisecond), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	first := client(servers, options...)
	read(ctx, first, 400)
	must(first.CommitUncommittedOffsets(ctx), "commit")
	second := client(servers, options...)
	for members := 0; members < 2; {
		described, err := admin.DescribeGroups(ctx, "go-readers")
		must(err, "describe")
		if described["go-readers"].State == "Stable" {
			members = len(described["go-readers"].Members)
		}
		short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
		first.PollFetches(short)
		second.PollFetches(short)
		stop()
	}
	check(true, "two members")
	second.Close()
	first.Close()
	offsets, err := admin.FetchOffsets(ctx, "go-readers")
	must(err, "offsets")
	total := int64(0)
	offsets.Each(func(each kadm.OffsetResponse) { total += each.At })
	check(total == 400, "committed")
	lags, err := admin.Lag(ctx, "go-readers")
	must(err, "lag")
	lag := lags["go-readers"]
	check(lag.Error() == nil && lag.Lag.Total() == 0, "lag")
	configs, err := admin.DescribeTopicConfigs(ctx, "go-group")
	must(err, "configs")
	seen := false
	for _, config := range configs[0].Configs {
		seen = seen || (config.Key == "retention.ms" && config.MaybeValue() == "5000")
	}
	check(seen, "describe configs")
	deleted, err := admin.DeleteGroups(ctx, "go-readers")
	must(err, "delete group")
	check(deleted["go-readers"].Err == nil, "deleted group")
	gone, err := admin.DeleteTopics(ctx, "go-group")
	must(err, "delete topic")
	check(gone["go-group"].Err == nil, "deleted topic")
	fmt.Println("all ok")
}
