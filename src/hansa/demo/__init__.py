"""`hansa demo`: a whole cluster of processes; some are killed and brought back, and every message is counted.

- `director`: starts the processes, kills one of each kind, brings it back, and adds up the books.
- `cast`: what the processes do. `node`: the same for a node of the topic mesh.
- `acting`: how each process takes orders and reports.
- `board`: what is shown, and the books of the topics.
- `ledger`: what a reader received, in numbers that do not depend on hansa's own. `latencies`: percentiles.
"""
