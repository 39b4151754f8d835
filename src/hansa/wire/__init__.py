"""The wire formats: bytes to values and back, one file per protocol, without I/O; all decoding is bounded.

- `frames`, `commands`: ZMTP itself; `fields`: one frame, one field.
- `registry`, `listing`: messages between providers, registries and discoveries.
- `business`: calls and replies between gateways and providers.
- `topics`: messages between nodes of the topic mesh; `publication`: the same for a PUB/SUB mesh.
"""
