"""Replication between the replicas of a partition."""
