"""Consumer groups: members, assignments, and committed offsets.

``machine.GroupMachine`` is a decide-and-replay machine for one partition of ``__consumer_offsets``. The committed
offsets and the last complete generation of each group are durable; waiting members, pending member ids and session
timers are in memory only, as in Kafka, and clients rejoin after a failover.
"""
