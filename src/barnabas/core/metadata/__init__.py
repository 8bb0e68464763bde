"""The metadata machine: the state of the cluster, changed by requests and rebuilt from records.

State is one immutable MetadataImage. ``machine.MetadataMachine.decide`` answers a request with records and a
reply and changes nothing; ``replay`` applies committed or appended records and makes the next image. Brokers
never see the machine, only images.
"""
