"""What asyncio lacks and every part of hansa uses.

- `tasks`: tasks that end with the object that started them, a `close` that runs once, calls that block, and
  blocks of work that are cancelled when what they stand on is lost.
- `loops`: runs a program on uvloop where it is installed; the loop that an object lives in.
- `mailboxes`: hands to tasks what callbacks deliver: waiters, mailboxes, streams of events.
- `backoff`: how long to wait before the next try.
- `tied_process`: starts programs that end with this one, whatever ends it.
- `steps`: how any thread has something done in the thread of an event loop.
"""
