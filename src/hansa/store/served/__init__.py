"""`hansa store`: a store of this process with a journal on disk, served over etcd's own API.

In the order in which a request goes through them:

- `server`: the gRPC services; `answers`, `watch_stream`: keys, refusals and watches as etcd's.
- `served_store`: the store on an event loop; nobody is told of a change before the journal has it.
- `recorded`: the store as a machine that returns every change as a record; `records`: records and snapshots
  as bytes.
- `disk_journal`: flushes all that waits together, off the event loop.
- `journal`: the journal's format on disk, and how a torn end is distinguished from damage.
- `folder`: the files, how they are written, and what a start does with them.
"""
