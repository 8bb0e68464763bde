"""Plans where replicas and leaders go: pure rules over what the protocol tells, for any cluster of Kafka's protocol."""
