"""Consensus over the metadata log, in KRaft's shape (KIP-595, KIP-853)."""
