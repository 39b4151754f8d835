"""Bytes to values and back, one file per protocol. Nothing here does I/O, and all decoding is bounded."""
