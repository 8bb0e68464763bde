"""Consumer groups: who is in them, what each member reads, and how far they have come.

``machine.GroupMachine`` serves one partition of ``__consumer_offsets`` in the decide-and-replay shape. Durable are the
committed offsets and the last complete generation of each group; members that wait to join or to sync, pending members
and session timers are in memory only, as in Kafka, and clients join again after a failover.
"""
