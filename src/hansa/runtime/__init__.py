"""What asyncio lacks and every part of hansa uses.

- `tasks`: tasks that end with the object that started them, and a `close` that runs once.
- `home`: the event loop that an object lives in, and the error for callers from anywhere else.
- `waiters`: tasks that wait in line until a callback wakes them.
- `mailboxes`: hands over to tasks what callbacks deliver.
- `event_stream`: events for a task that reads them when it is ready.
- `backoff`: how long to wait before the next try.
- `steps`: how any thread has something done in the thread of an event loop.
- `fast_loop`: runs a program on uvloop where it is installed.
"""
