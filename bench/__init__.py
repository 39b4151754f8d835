"""Benchmarks of hansa against its peers, in one interleaved run: `python -m bench --help`.

A *kind* (`bench/kinds/`) says how processes are arranged and what is measured. A *peer* (`bench/peers/`) is
one library in one configuration, written once against the roles of each kind. A *case* is a kind with
numbers, a *trial* is one peer on one case in one round, each process of it started fresh.
"""
