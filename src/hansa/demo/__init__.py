"""`hansa demo`: a whole cluster of processes; some are killed and brought back, and every message is counted.

- `director`: starts the processes, kills one of each kind, brings it back, and checks the books.
- `cast`: what the processes do, how they take orders and report.
- `books`: their counts: latencies, and what a reader of topics received.
- `board`: the screen, and how the books of the topics add up.
"""
