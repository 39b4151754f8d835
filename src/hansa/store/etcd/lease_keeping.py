"""When leases are renewed by a thread that is not the event loop's, and how it watches the event loop. Pure.

Two threads look at these objects: the one that renews makes all changes, except `Pulse.answered`, which the
event loop calls. Each number has one writer, so nothing is locked.

Code that holds the interpreter stops both threads. Nothing is renewed then, and nothing can be: a lease
survives only if that is over before the lease's time is. The renewing thread sees it afterwards, by its own
lateness.
"""

from math import inf

from hansa.limits import STORE_PULSE_S_MAX, STORE_PULSE_S_MIN

# A lease that an answer calls gone is asked for once more: a member that lags may not know it yet.
_GONE_ANSWERS_MAX = 2
_ASK_AGAIN_S = 0.1
# After a renewal that failed the next one comes sooner, so that one lost answer costs little of the lease.
_HASTE = 4
# Pulses in the shortest interval between two renewals.
_PULSES = 4


class Pulse:
    """Asks the event loop for a sign of life, again and again, and measures how long it takes."""

    def __init__(self) -> None:
        self._sent_count = 0
        self._sent_s = 0.0
        self._answered_count = 0
        self._lag_s = 0.0

    @property
    def is_awaited(self) -> bool:
        return self._answered_count < self._sent_count

    def sent(self, *, now: float) -> None:
        self._sent_s = now
        self._sent_count += 1

    def answered(self, *, now: float) -> float:
        """Gives how late the loop was."""
        self._lag_s = now - self._sent_s
        self._answered_count = self._sent_count
        return self._lag_s

    def silence_s(self, *, now: float) -> float:
        """How long the loop has not answered; 0 when nothing is asked."""
        return now - self._sent_s if self.is_awaited else 0.0

    def lag_s(self, *, now: float) -> float:
        """How late the loop was, or is."""
        return max(self.silence_s(now=now), self._lag_s) if self.is_awaited else self._lag_s

    def due_s(self, interval_s: float) -> float:
        """When to ask next."""
        return self._sent_s + interval_s


class KeptLease:
    """One lease: until when it is surely kept, and when to renew it next."""

    def __init__(
        self, lease: int, *, ttl_s: float, granted_s: float, interval_s: float, silence_s_max: float
    ) -> None:
        self.lease = lease
        self.interval_s = interval_s
        self.silence_s_max = silence_s_max
        self.kept_until_s = granted_s + ttl_s
        self.is_lost = False
        self.failures_count = 0
        self.due_s = granted_s + interval_s
        self.is_asked = False
        self._ttl_s = ttl_s
        self._gone_count = 0

    def is_due(self, *, now: float, silence_s: float) -> bool:
        """Whether to renew now. Not while the loop is silent: what is stuck must not look alive for ever."""
        waiting = not self.is_lost and not self.is_asked
        return waiting and self.due_s <= now and silence_s <= self.silence_s_max

    def asked(self) -> None:
        self.is_asked = True

    def answered(self, ttl_s: float, *, sent_s: float) -> None:
        """The store renewed it for so long; 0 when it says that the lease is gone."""
        self.is_asked = False
        if ttl_s <= 0.0:
            self._gone_count += 1
            self.due_s = sent_s + min(self.interval_s / _HASTE, _ASK_AGAIN_S)
            self.is_lost = self.is_lost or self._gone_count >= _GONE_ANSWERS_MAX
            return
        self._gone_count = 0
        self.failures_count = 0
        # From when it was sent: the store began to count after that.
        self.kept_until_s = sent_s + min(ttl_s, self._ttl_s)
        self.due_s = sent_s + self.interval_s

    def lose(self) -> None:
        """The store is not the one that granted it: whatever it answers from now on, the lease is gone."""
        self.is_lost = True

    def failed(self, *, now: float, members_count: int) -> None:
        """Nobody answered. Each member is asked once without a pause."""
        self.is_asked = False
        self.failures_count += 1
        pause_s = 0.0 if self.failures_count % members_count else self.interval_s / _HASTE
        self.due_s = now + pause_s


class LeaseBook:
    """All leases that are kept, and the pulse."""

    def __init__(self) -> None:
        self.pulse = Pulse()
        # How often the loop is asked for a sign of life.
        self.pulse_s = STORE_PULSE_S_MAX
        # When the keeper meant to look again; never, while there is nothing to look at.
        self._look_s = inf
        self._leases: dict[KeptLease, None] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, lease: KeptLease) -> None:
        self._leases[lease] = None
        self._set_pulse()

    def remove(self, lease: KeptLease) -> None:
        """Removing twice is once."""
        self._leases.pop(lease, None)
        self._set_pulse()

    def due(self, *, now: float) -> list[KeptLease]:
        """Those to renew now."""
        silence_s = self.pulse.silence_s(now=now)
        return [lease for lease in self._leases if lease.is_due(now=now, silence_s=silence_s)]

    def wants_pulse(self, *, now: float) -> bool:
        """Whether to ask the loop for a sign of life; never while it owes one."""
        return bool(self._leases) and not self.pulse.is_awaited and self.pulse.due_s(self.pulse_s) <= now

    def send_pulse(self, *, now: float) -> None:
        """The loop is asked. What held up the keeper held up the loop as well: both were due before now."""
        self.pulse.sent(now=min(now, self._look_s))

    def deadline(self, *, now: float) -> float | None:
        """When to look again; None when there is nothing to look at."""
        if not self._leases:
            self._look_s = inf
            return None
        silence_s = self.pulse.silence_s(now=now)
        # A renewal that was held back by a silent loop is looked at again with the next pulse.
        times = [
            lease.due_s
            for lease in self._leases
            if not lease.is_asked and not lease.is_lost and silence_s <= lease.silence_s_max
        ]
        self._look_s = min([now + self.pulse_s, *times])
        return self._look_s

    def _set_pulse(self) -> None:
        # Kept, and not reckoned when asked: the loop asks too, while leases come and go here.
        shortest_s = min((lease.interval_s for lease in self._leases), default=STORE_PULSE_S_MAX)
        self.pulse_s = min(max(shortest_s / _PULSES, STORE_PULSE_S_MIN), STORE_PULSE_S_MAX)
