"""How a process is present at registries: what a provider and a node of topics share.

- `registrations`: one process and its registries as a machine: which one is active, what each was told.
- `registry_line`: drives it: one connection to one registry at a time, one timer.
- `epoch`: which of several statements about one entry came last.
- `provider_info`: the values that programs see, reserved names, and how often heartbeats are sent.
- `strikes`: counts what makes no sense, by peer. `carried`: what a registry that has just started may have
  forgotten, trusted a little longer.
"""
