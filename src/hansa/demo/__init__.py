"""`hansa demo`: a whole cluster of processes that is played, killed and counted.

- `director`: starts the cast, kills one of each, brings it back, and settles the books.
- `cast`, `node`, `acting`: what the processes do, and how they take orders and report.
- `board`: what is shown. `ledger`: what readers received, in numbers that do not depend on hansa's own.
"""
