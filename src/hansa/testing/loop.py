"""An asyncio event loop without a clock and without I/O: the same seed gives the same history, bit for bit.

Time stands still while callbacks run, and jumps to the next timer when none is ready. Callbacks that are
ready together run in an order drawn from the seed, within what asyncio promises: plain callbacks of one life
keep the order in which they were scheduled; the steps of different tasks and of different lives do not. A
turn runs the callbacks that were ready when it began; those that they schedule run in the next turn.

Hidden sources of chance are closed: the garbage collector runs at fixed steps only, and every method that
needs a thread, a socket or a signal refuses (`RealWorldRefused`): real sockets, name lookups and subprocesses
would bring real time and real chance into a run that must replay bit for bit.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from hashlib import sha256
from heapq import heapify, heappop, heappush
from typing import Any, NoReturn, TypeVar

from hansa.chance import Chance
from hansa.errors import InvariantBroken, UsageError
from hansa.testing.life import Life, LifeState, current_life, enter, life_of

T = TypeVar("T")
ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]

# A monotonic clock that starts at zero would hide code that takes a time of 0.0 for "never".
START_S = 1_000.0
STEPS_MAX = 20_000_000
# A busy loop makes no progress in virtual time; no correct program has this many steps in one instant.
INSTANT_STEPS_MAX = 500_000
COLLECT_STEPS = 200_000
DISMANTLE_STEPS_MAX = 200_000
CANCELLED_TIMERS_MIN = 256
_UNTRACED_MAX = 1_000
# Of the collector's generations all but the oldest. What a run makes is young until the run ends. A test
# process is full of old objects, and searching those takes longer than a run.
_YOUNG = 1

_log = logging.getLogger("hansa.testing")


class Deadlocked(InvariantBroken):
    """Nothing is ready, no timer is set, and the main coroutine still waits."""

    code = "simulation-deadlocked"


class Stuck(InvariantBroken):
    """The run takes more steps than its bound: a loop that waits without letting time pass, most likely."""

    code = "simulation-stuck"


class NotSimulated(UsageError):
    """The program asked for real I/O, threads or signals, which would end the replay."""

    code = "not-simulated"


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise NotSimulated(
            f"loop.{name}() needs the real world; in a simulation use the host's network, clock and chance"
        )

    return refuse


class RealWorldRefused(asyncio.AbstractEventLoop):
    """An event loop without an outside world."""

    add_reader = _refusal("add_reader")  # type: ignore[assignment]
    add_signal_handler = _refusal("add_signal_handler")  # type: ignore[assignment]
    add_writer = _refusal("add_writer")  # type: ignore[assignment]
    connect_accepted_socket = _refusal("connect_accepted_socket")
    connect_read_pipe = _refusal("connect_read_pipe")
    connect_write_pipe = _refusal("connect_write_pipe")
    create_connection = _refusal("create_connection")
    create_datagram_endpoint = _refusal("create_datagram_endpoint")
    create_server = _refusal("create_server")
    create_unix_connection = _refusal("create_unix_connection")
    create_unix_server = _refusal("create_unix_server")
    get_task_factory = _refusal("get_task_factory")
    getaddrinfo = _refusal("getaddrinfo")
    getnameinfo = _refusal("getnameinfo")
    remove_reader = _refusal("remove_reader")
    remove_signal_handler = _refusal("remove_signal_handler")
    remove_writer = _refusal("remove_writer")
    run_in_executor = _refusal("run_in_executor")  # type: ignore[assignment]
    sendfile = _refusal("sendfile")
    set_default_executor = _refusal("set_default_executor")
    set_task_factory = _refusal("set_task_factory")
    sock_accept = _refusal("sock_accept")
    sock_connect = _refusal("sock_connect")
    sock_recv = _refusal("sock_recv")
    sock_recv_into = _refusal("sock_recv_into")
    sock_recvfrom = _refusal("sock_recvfrom")
    sock_recvfrom_into = _refusal("sock_recvfrom_into")
    sock_sendall = _refusal("sock_sendall")
    sock_sendfile = _refusal("sock_sendfile")
    sock_sendto = _refusal("sock_sendto")
    start_tls = _refusal("start_tls")
    subprocess_exec = _refusal("subprocess_exec")
    subprocess_shell = _refusal("subprocess_shell")


class ScheduledCall:
    """A scheduled callback: the life to which it belongs, and the lane whose order it keeps.

    Does for callers what `asyncio.TimerHandle` does. It is not one: making one takes three calls, and a run
    makes one for each step.
    """

    __slots__ = ("_cancelled", "_context", "_loop", "_when", "args", "callback", "lane", "life", "what")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: Context,
    ) -> None:
        self.callback = callback
        self.args = args
        self.life = life_of(context)
        self._when = when
        self._loop = loop
        self._context = context
        self._cancelled = False
        owner = getattr(callback, "__self__", None)
        self.lane: object
        if isinstance(owner, asyncio.Task):
            self.lane = owner
            self.what = owner.get_name()
        else:
            self.lane = self.life
            self.what = getattr(callback, "__qualname__", type(callback).__name__)

    def __repr__(self) -> str:
        return f"<ScheduledCall of {self.what} at {self._when:.6f} s>"

    def cancel(self) -> None:
        """It does not run, if it has not yet."""
        if not self._cancelled:
            self._cancelled = True
            # What was cancelled keeps nothing alive until its time comes.
            del self.callback, self.args
            self._loop.cancelled_one()

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        """The virtual time at which it is due."""
        return self._when

    def run(self) -> None:
        """Run it in its context. What it raises goes to the loop's handler, as in asyncio."""
        try:
            self._context.run(self.callback, *self.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._loop.call_exception_handler(
                {"message": f"Exception in callback {self.what}", "exception": error, "handle": self}
            )
            # The error's traceback refers to this frame, and so to the call.
            self = None  # type: ignore[assignment]


class NumberedTask(asyncio.Task[T]):
    """A task whose place in a set depends on when it was made, and not on where in memory it is.

    `asyncio.TaskGroup` keeps its tasks in a set, and cancels them in the order of the set.
    """

    def __init__(self, number: int, *arguments: Any, **options: Any) -> None:
        self._number = number
        super().__init__(*arguments, **options)

    def __hash__(self) -> int:
        return self._number


class SimLoop(RealWorldRefused):
    """Virtual time for asyncio code. It raises `Deadlocked` or `Stuck` where a real loop would hang."""

    def __init__(self, chance: Chance, *, start_s: float = START_S, steps_max: int = STEPS_MAX) -> None:
        # Garbage from before must not be finalized in the middle of a run: the young is collected now, the
        # old is left alone until the run is over.
        gc.collect(_YOUNG)
        self._chance = chance
        self._now_s = start_s
        self._steps = 0
        self._steps_max = steps_max
        self._instant_steps = 0
        self._ready: list[ScheduledCall] = []
        self._timers: list[tuple[float, int, ScheduledCall]] = []
        self._timer_number = 0
        self._cancelled_timers = 0
        self._tasks: list[tuple[asyncio.Task[Any], Life | None]] = []
        self._tasks_prune_at = 1_024
        self._task_number = 0
        self._generators: weakref.WeakKeyDictionary[Any, Context] = weakref.WeakKeyDictionary()
        self._trace = sha256()
        # Steps that are not in the trace yet: many at a time take half as long.
        self._untraced: list[str] = []
        self._thread_id: int | None = None
        self._stopping = False
        self._closed = False
        self._dismantling = False
        self._exception_handler: ExceptionHandler | None = None

    def __repr__(self) -> str:
        return f"<SimLoop at {self._now_s:.6f} s, {self._steps} steps>"

    @property
    def steps(self) -> int:
        """How many callbacks ran so far."""
        return self._steps

    def digest(self) -> str:
        """A fingerprint of every step so far: when, whose and what. Equal histories have equal digests."""
        self._flush_trace()
        return self._trace.hexdigest()

    def _flush_trace(self) -> None:
        self._trace.update("".join(self._untraced).encode())
        self._untraced.clear()

    # Scheduling.

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> ScheduledCall:
        self._check_open()
        call = ScheduledCall(
            self._now_s, callback, args, self, copy_context() if context is None else context
        )
        self._enqueue(call)
        return call

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> ScheduledCall:
        if self._thread_id is not None and threading.get_ident() != self._thread_id:
            raise NotSimulated("call_soon_threadsafe from another thread: the simulator has one thread only")
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> ScheduledCall:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> ScheduledCall:
        self._check_open()
        call = ScheduledCall(when, callback, args, self, copy_context() if context is None else context)
        self._timer_number += 1
        heappush(self._timers, (when, self._timer_number, call))
        return call

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        self._check_open()
        self._task_number += 1
        # asyncio counts its default names across all loops of the process: not the same in every replay.
        named = f"task-{self._task_number}" if name is None else str(name)
        task: asyncio.Task[T] = NumberedTask(
            self._task_number, coro, loop=self, name=named, context=context, **options
        )
        self._tasks.append((task, current_life() if context is None else life_of(context)))
        if len(self._tasks) >= self._tasks_prune_at:
            self._tasks = [entry for entry in self._tasks if not entry[0].done()]
            self._tasks_prune_at = 2 * len(self._tasks) + 1_024
        return task

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str, life: Life | None) -> asyncio.Task[T]:
        """Start a task of this life, in a context of its own. `close` ends it, if nothing else does."""
        context = Context()
        context.run(enter, life)
        return self.create_task(work, name=name, context=context)

    def cancelled_one(self) -> None:
        """For `ScheduledCall`: forget the cancelled timers, once they are many."""
        self._cancelled_timers += 1
        if self._cancelled_timers > CANCELLED_TIMERS_MIN and self._cancelled_timers > len(self._timers) // 2:
            self._timers = [entry for entry in self._timers if not entry[2]._cancelled]
            heapify(self._timers)
            self._cancelled_timers = 0

    # Lives.

    def pause(self, life: Life) -> None:
        """Hold back all callbacks of this life, as SIGSTOP does; time goes on around it."""
        life.turn(LifeState.PAUSED)

    def resume(self, life: Life) -> None:
        """Run the callbacks that were held back, and go on, as SIGCONT does."""
        life.turn(LifeState.RUNNING)
        life.resumed_s = self._now_s
        held, life.held = life.held, []
        self._ready.extend(held)

    def kill(self, life: Life) -> None:
        """Nothing of this life runs again: no `finally`, no callback, no timer."""
        life.turn(LifeState.DEAD)

    def tasks_of(self, life: Life | None) -> list[asyncio.Task[Any]]:
        """The life's tasks that are not done, oldest first."""
        return [task for task, owner in self._tasks if owner is life and not task.done()]

    def timers_of(self, life: Life | None) -> list[ScheduledCall]:
        """The life's timers that are still set, soonest first."""
        return [call for _, _, call in sorted(self._timers) if call.life is life and not call._cancelled]

    # Running.

    def run_forever(self) -> None:
        self._check_open()
        if self.is_running() or asyncio._get_running_loop() is not None:
            raise RuntimeError("cannot run the simulator's loop while an event loop is running")
        hooks_before = sys.get_asyncgen_hooks()
        collecting_before = gc.isenabled()
        gc.disable()
        self._thread_id = threading.get_ident()
        sys.set_asyncgen_hooks(firstiter=self._generator_began, finalizer=self._generator_dropped)
        asyncio._set_running_loop(self)
        try:
            while not self._stopping:
                self._turn()
        finally:
            self._stopping = False
            self._thread_id = None
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks_before)
            if collecting_before:
                gc.enable()

    def run_until_complete(self, future: Any) -> Any:
        """Run until the future or coroutine is done and return its result."""
        self._check_open()
        main = future if asyncio.isfuture(future) else self.create_task(future)
        main.add_done_callback(self._stop_after)
        try:
            self.run_forever()
        except BaseException:
            if main.done() and not main.cancelled():
                main.exception()
            raise
        finally:
            main.remove_done_callback(self._stop_after)
        if not main.done():
            raise RuntimeError("the loop was stopped before the main coroutine was done")
        return main.result()

    def _stop_after(self, future: asyncio.Future[Any]) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._thread_id is not None

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Let every task end outside the history, also of dead lives, without a warning; then refuse work."""
        if self.is_running():
            raise RuntimeError("cannot close a running loop")
        if not self._closed:
            self._dismantle()
            self._closed = True
            self._ready.clear()
            self._timers.clear()
            self._tasks.clear()

    def _turn(self) -> None:
        if self._timers and self._timers[0][0] <= self._now_s:
            self._promote_due()
        if not self._ready:
            self._jump()
        calls, self._ready = self._ready, []
        if len(calls) > 1:
            calls = self._drawn_order(calls)
        for call in calls:
            if call._cancelled:
                continue
            life = call.life
            if life is not None and life.state is not LifeState.RUNNING and not self._dismantling:
                life.held.append(call)
                continue
            self._count_step(call)
            call.run()

    def _enqueue(self, call: ScheduledCall) -> None:
        life = call.life
        if life is None or life.state is LifeState.RUNNING or self._dismantling:
            self._ready.append(call)
        else:
            life.held.append(call)

    def _promote_due(self) -> None:
        while self._timers and self._timers[0][0] <= self._now_s:
            call = heappop(self._timers)[2]
            if call._cancelled:
                self._cancelled_timers -= 1
            else:
                self._enqueue(call)

    def _jump(self) -> None:
        """Nothing is ready: time passes until something is."""
        while not self._ready:
            while self._timers and self._timers[0][2]._cancelled:
                heappop(self._timers)
                self._cancelled_timers -= 1
            if not self._timers:
                raise Deadlocked(f"nothing can happen any more at {self._now_s:.6f} s{self._waiting()}")
            self._now_s = max(self._now_s, self._timers[0][0])
            self._instant_steps = 0
            self._promote_due()

    def _drawn_order(self, calls: list[ScheduledCall]) -> list[ScheduledCall]:
        """Shuffle the lanes and keep the order within each."""
        lanes: dict[object, list[ScheduledCall]] = {}
        for call in calls:
            lanes.setdefault(call.lane, []).append(call)
        if len(lanes) == 1:
            return calls
        turns = [lane for lane, queued in lanes.items() for _ in queued]
        self._chance.shuffle(turns)
        queues = {lane: iter(queued) for lane, queued in lanes.items()}
        return [next(queues[lane]) for lane in turns]

    def _count_step(self, call: ScheduledCall) -> None:
        self._steps += 1
        self._instant_steps += 1
        if self._dismantling:
            return
        # repr gives every bit of the time.
        life = call.life
        self._untraced.append(f"{self._now_s!r} {None if life is None else life.title} {call.what}\n")
        if len(self._untraced) == _UNTRACED_MAX:
            self._flush_trace()
        if self._steps % COLLECT_STEPS == 0:
            gc.collect(_YOUNG)
        if self._instant_steps > INSTANT_STEPS_MAX:
            raise Stuck(f"{INSTANT_STEPS_MAX} steps and no time passed, now in {call.what}{self._waiting()}")
        if self._steps > self._steps_max:
            raise Stuck(f"more than {self._steps_max} steps, now in {call.what}{self._waiting()}")

    def _waiting(self) -> str:
        lines = []
        for task, life in self._tasks:
            if not task.done():
                frame = next(iter(task.get_stack(limit=1)), None)
                place = f" at {frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
                lines.append(f"\n  {life or 'the world'} waits in {task.get_name()}{place}")
        return "".join(lines[:20]) or "; no task waits"

    def _dismantle(self) -> None:
        """Cancel everything and let it run out, unseen: no trace, no complaints, a bound on the steps."""
        self._dismantling = True
        held = [call for _, life in self._tasks if life is not None for call in self._release(life)]
        self._ready.extend(held)
        bound = self._steps + DISMANTLE_STEPS_MAX
        asyncio._set_running_loop(self)
        try:
            for task, _ in self._tasks:
                task.cancel()
            while self._steps < bound and any(not task.done() for task, _ in self._tasks):
                self._turn()
        except Deadlocked:
            pass
        finally:
            asyncio._set_running_loop(None)
        for task, _ in self._tasks:
            if not task.done():
                # Left behind on purpose; asyncio would warn about it when it is collected.
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            elif not task.cancelled():
                task.exception()

    @staticmethod
    def _release(life: Life) -> list[ScheduledCall]:
        held, life.held = life.held, []
        return held

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the simulator's loop is closed")

    # Asynchronous generators.

    def _generator_began(self, generator: Any) -> None:
        self._generators[generator] = copy_context()

    def _generator_dropped(self, generator: Any) -> None:
        context = self._generators.pop(generator, None)
        if not self._closed:
            self.call_soon(self._close_generator, generator, context=context)

    def _close_generator(self, generator: Any) -> None:
        self.create_task(generator.aclose(), name="close a dropped generator")

    async def shutdown_asyncgens(self) -> None:
        generators = list(self._generators)
        self._generators.clear()
        await asyncio.gather(*[generator.aclose() for generator in generators], return_exceptions=True)

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is no executor, so there is nothing to wait for."""

    # Errors that nobody caught.

    def get_exception_handler(self) -> ExceptionHandler | None:
        return self._exception_handler

    def set_exception_handler(self, handler: ExceptionHandler | None) -> None:
        self._exception_handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        _log.error("%s", context.get("message", "unhandled error"), exc_info=context.get("exception"))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._dismantling:
            return
        if self._exception_handler is None:
            self.default_exception_handler(context)
        else:
            self._exception_handler(self, context)

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Debug mode measures real time; here it has nothing to measure."""
