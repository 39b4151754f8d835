"""How a process is present at registries: what providers and nodes of topics share.

- `registrations`: the machine: which registry is active, what it was told, what it answered.
- `registry_line`: its driver: one connection to one registry at a time, and one timer.
- `epoch`: stamps that say which of several statements about one entry came last.
- `provider_info`: values that programs see, reserved service names, and the heartbeat's interval.
- `strikes`: how many bad messages each peer has sent.
- `carried`: which entries of a restarted registry are trusted until their providers return to it.
"""
