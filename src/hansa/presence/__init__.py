"""The presence of a process at registries: what providers and nodes of topics share.

- `registrations`: the machine: which registry is active, what it was told, what it answered.
- `registry_line`: its driver: one connection to one registry at a time, and one timer.
- `statements`: which of several statements about an entry count: stamps, and what a new registry omits.
- `provider_info`: values that programs see, reserved service names, and the heartbeat's interval.
"""
