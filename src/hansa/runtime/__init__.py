"""The parts that asyncio lacks and every part of hansa uses.

- `tasks`: tasks that end with the object that started them, a `close` that runs once, calls that block, and
  blocks of work that are cancelled when a loss comes.
- `loops`: runs a program on uvloop where it is installed; the loop to which an object belongs.
- `mailboxes`: from callbacks to tasks: waiters, mailboxes, streams of events.
- `backoff`: how long to wait before the next try.
- `tied_process`: starts programs that end with this one, whatever ends it.
- `steps`: runs something for any thread in the thread of an event loop.
"""
