"""Bytes to values and back, one file per protocol. Nothing here does I/O, and all decoding is bounded.

- `frames`, `commands`: ZMTP itself; `fields`: one frame, one field.
- `registry`, `listing`: what providers, registries and discoveries say to each other.
- `business`: calls and replies between gateways and providers.
- `topics`: what nodes of the topic mesh say to each other; `publication`: the same for a PUB/SUB mesh.
"""
