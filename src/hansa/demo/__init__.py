"""`hansa demo`: a whole cluster of processes; some are killed and brought back, and every message is counted.

- `director`: starts the processes, kills one of each kind, brings it back, and adds up the books.
- `cast`: what the processes do, how they take orders and report.
- `books`: what they count: latencies, and what a reader of topics received.
- `board`: what is shown, and how the books of the topics add up.
"""
