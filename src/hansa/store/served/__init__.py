"""`hansa store`: a store of this process with a journal on disk, served over etcd's own API.

In the order in which a request goes through them:

- `server`: the gRPC services; `kv_answers`, `watch_stream`, `refusals`: keys, watches and refusals as etcd's.
- `served_store`: the store on an event loop; nobody is told of a change before the journal has it.
- `recorded`: the store as a machine that tells every change as a record; `records`: records as bytes.
- `disk_journal`: flushes what waits together, off the event loop.
- `journal`: the journal's form on disk, and how a torn end is told from damage; `journal_first_form`: the
  form before it, which is only read.
- `folder`, `snapshot`, `durable_files`: the files, and what a start does with them.
"""
