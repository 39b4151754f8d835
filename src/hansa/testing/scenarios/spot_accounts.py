"""The books of subscriptions: the messages that each was given, when it was active, and its reported losses.

An account belongs to one subscription. While it is active on a tenure, the messages that the tenure gives out
are delivered, or counted as dropped (the inbox was full) or missed (lost between nodes), or still wait. Only
the two nodes know where exactly that began, and where it ended for a connection that broke; the books know
bounds for both, which mostly meet, and the counts must lie between them.

A spot may have several subscriptions that match one topic, and change them while the owner is away. So there
is a second kind of account, a stay: all that a spot has of one topic, through any of its subscriptions, from
its first one that matches to the end of its last one.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from hansa.testing.scenarios.spot_posts import Post, Tenure, Tenures
from hansa.testing.world import World

UNKNOWN = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A topic's position at the node when the subscription joined others that were active already."""

    owner: bytes
    epoch: int
    last: int


@dataclass(slots=True, kw_only=True)
class Run:
    """A time of being active on one owner and epoch; interruptions that changed neither are part of it."""

    owner: bytes
    epoch: int
    began_s: float
    is_active: bool = True


@dataclass(slots=True, kw_only=True, eq=False)
class Account:
    """One subscription from `subscribe` to its end."""

    label: str
    spot: str
    text: str
    opened_s: float
    is_roomy: bool = False
    """Whether its inbox never drops anything."""
    floors: dict[str, Floor] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    """Topics for which the node was waiting for a confirmation: messages after it may be older."""
    runs: dict[str, list[Run]] = field(default_factory=dict)
    """By topic, in order."""
    given: dict[str, list[Post]] = field(default_factory=dict)
    """By topic, in order."""
    given_count: int = 0
    shared: set[str] = field(default_factory=set)
    """Topics whose messages another subscription of the spot may have received instead."""
    told_missed_count: int = 0
    told_dropped_count: int = 0
    closed_s: float | None = None
    unread_count: int = 0
    dropped_count: int = 0
    missed_count: int = 0
    has_settled: bool = False
    """Whether it was closed when everything had come to rest: nothing was under way."""

    def __str__(self) -> str:
        return f"{self.label} ({self.text})"

    @property
    def is_pattern(self) -> bool:
        return self.text.endswith("*")

    def matches(self, topic: str) -> bool:
        return matches(self.text, topic)


@dataclass(slots=True, kw_only=True, eq=False)
class TopicStay(Account):
    """A spot's stay with one topic, which is its text."""

    members: set[str] = field(default_factory=set)
    """Labels of the open accounts that match the topic."""
    is_exact: bool = True
    """Whether nothing was dropped, and nothing left unread in a subscription that ended."""


def matches(text: str, topic: str) -> bool:
    """Whether a subscription with this text matches the topic."""
    return topic.startswith(text[:-1]) if text.endswith("*") else topic == text


class Accounts:
    """Opens and closes accounts, and judges each delivery at once and the counts in the end."""

    def __init__(
        self,
        world: World,
        tenures: Tenures,
        *,
        topics: Iterable[str],
        watched: Container[str],
        contested: Container[str],
        retained: Container[str],
    ) -> None:
        self._world = world
        self._tenures = tenures
        self._topics = tuple(topics)
        self._watched = watched
        self._contested = contested
        self._retained = retained
        self._accounts: list[Account] = []
        self._stays: dict[str, dict[str, TopicStay]] = {}
        """The open stays, by spot and topic."""
        self._settled_stays: list[TopicStay] = []
        self._given_to: dict[str, set[int]] = {}
        self._expected: list[tuple[Account, Post]] = []
        self.exact_count = 0
        """Accounts whose losses were known exactly."""
        self.exact_stays_count = 0
        """Stays whose losses were known exactly."""

    def open(self, spot: str, text: str, rivals: Iterable[Account]) -> Account:
        """A spot subscribes; `rivals` are the accounts that it has open already."""
        account = Account(
            label=f"{spot} #{len(self._accounts)}", spot=spot, text=text, opened_s=self._world.elapsed_s()
        )
        for rival in rivals:
            both = {topic for topic in self._topics if account.matches(topic) and rival.matches(topic)}
            account.shared |= both
            rival.shared |= both
        self._accounts.append(account)
        return account

    def stay(self, account: Account) -> None:
        """The account is complete: its spot stays with every topic that it matches."""
        stays = self._stays.setdefault(account.spot, {})
        for topic in filter(account.matches, self._topics):
            stay = stays.get(topic)
            if stay is None:
                stay = stays[topic] = TopicStay(
                    label=f"{account.spot} with {topic}",
                    spot=account.spot,
                    text=topic,
                    opened_s=account.opened_s,
                )
                if topic in account.floors:
                    stay.floors[topic] = account.floors[topic]
                stay.asked = account.asked & {topic}
            stay.members.add(account.label)
            stay.is_exact = stay.is_exact and account.is_roomy

    def activated(self, account: Account, topic: str, owner: bytes, epoch: int) -> None:
        """The subscription says that this topic is active."""
        if not account.matches(topic):
            self._world.fail("a subscription is active on its topics only", f"{account}: {topic}")
        for one in self._account_and_stay(account, topic):
            self._activate(one, topic, owner, epoch)

    def _account_and_stay(self, account: Account, topic: str) -> list[Account]:
        stay = self._stays.get(account.spot, {}).get(topic)
        return [account] if stay is None else [account, stay]

    def _activate(self, account: Account, topic: str, owner: bytes, epoch: int) -> None:
        runs = account.runs.setdefault(topic, [])
        if runs and (runs[-1].owner, runs[-1].epoch) == (owner, epoch):
            runs[-1].is_active = True
            return
        for run in runs:
            run.is_active = False
        runs.append(Run(owner=owner, epoch=epoch, began_s=self._world.elapsed_s()))

    def suspended(self, account: Account, topic: str) -> None:
        """The subscription says that this topic lost its owner."""
        for one in self._account_and_stay(account, topic):
            for run in one.runs.get(topic, ()):
                run.is_active = False

    def missed(self, spot: str, topic: str, count: int) -> None:
        """A subscription of the spot reports missed messages; it may have ended meanwhile."""
        stay = self._stays.get(spot, {}).get(topic)
        if stay is not None:
            stay.missed_count += count

    def away(self, spot: str) -> list[str]:
        """Topics with which the spot stays, and whose owner was there and is not now."""
        return [
            topic
            for topic, stay in self._stays.get(spot, {}).items()
            if stay.runs and not any(run.is_active for run in stay.runs[topic])
        ]

    def deliver(self, account: Account, post: Post) -> None:
        """The subscription's reader was given this message."""
        topic = post.topic
        if not account.matches(topic):
            self._world.fail("only what was subscribed is delivered", f"{post} came to {account}")
        given = account.given.setdefault(topic, [])
        if post in given:
            self._world.fail("nothing is delivered twice", f"{post} came to {account} again")
        to_spot = self._given_to.setdefault(account.spot, set())
        if post.number in to_spot and topic not in self._retained:
            self._world.fail("a spot receives once", f"{post} came to {account} after another of the spot")
        if topic not in self._contested:
            for former in reversed(given):
                if former.publisher == post.publisher:
                    if former.number > post.number:
                        self._world.fail("order is kept", f"{post} came to {account} after {former}")
                    break
        to_spot.add(post.number)
        given.append(post)
        account.given_count += 1
        stay = self._stays.get(account.spot, {}).get(topic)
        if stay is not None:
            if post in stay.given.setdefault(topic, []):
                self._world.fail("a spot that stays receives once", f"{post} came to {account} after another")
            stay.given[topic].append(post)

    def close(self, account: Account, *, unread: int, dropped: int, missed: int, settled: bool) -> None:
        """The subscription has ended, or its last counts are these."""
        account.closed_s = self._world.elapsed_s()
        account.unread_count, account.dropped_count, account.missed_count = unread, dropped, missed
        account.has_settled = settled
        stays = self._stays.get(account.spot, {})
        for topic, stay in list(stays.items()):
            if account.label not in stay.members:
                continue
            stay.members.remove(account.label)
            stay.is_exact = stay.is_exact and not unread
            stay.has_settled = settled
            if not stay.members:
                del stays[topic]
                if settled and stay.is_exact and topic in self._watched:
                    self._settled_stays.append(stay)

    # The final round.

    def expect(self, account: Account, post: Post) -> None:
        """This message has no excuse: it must be delivered here."""
        self._expected.append((account, post))

    def unmet(self) -> list[str]:
        """Expected messages that have not come."""
        self._expected = [
            (account, post)
            for account, post in self._expected
            if post not in account.given.get(post.topic, ())
        ]
        return [f"{post} has not come to {account}" for account, post in self._expected]

    # Judgement.

    def judge(self) -> None:
        """Compare every closed account with what the tenures gave out. They must be resolved."""
        for account in self._accounts:
            if account.closed_s is not None:
                self._judge(account)
        for stay in self._settled_stays:
            self._judge_stay(stay)

    def _judge_stay(self, stay: TopicStay) -> None:
        low, high = self._bounds(stay, stay.text)
        self.exact_stays_count += low == high
        if not low <= stay.missed_count <= high:
            self._world.fail(
                "what a spot missed is told, whatever it subscribed meanwhile",
                f"{stay}: {stay.missed_count} were told as missed, and lost were {low} to {high}",
            )

    def _judge(self, account: Account) -> None:
        low = high = 0
        for topic in sorted(account.runs.keys() | account.given.keys()):
            if topic not in self._watched:
                # Nobody saw what was given out; every counted message may be one of these.
                high += UNKNOWN
                continue
            least, most = self._bounds(account, topic)
            low += least
            high += most
        lost = account.dropped_count + account.missed_count + account.unread_count
        self.exact_count += low == high
        counts = (
            f"{account}: {account.dropped_count} dropped, {account.missed_count} missed, "
            f"{account.unread_count} unread, and lost were {low} to {high if high < UNKNOWN else 'any'}"
        )
        if not low <= lost <= high:
            self._world.fail("what is lost is reported, and nothing else", counts)
        if account.has_settled and account.told_missed_count != account.missed_count:
            self._world.fail(
                "what was missed is told", f"{counts}; told were {account.told_missed_count} missed"
            )
        if account.told_dropped_count > account.dropped_count:
            self._world.fail("no more is told than was dropped", f"{counts}; {account.told_dropped_count}")

    def _bounds(self, account: Account, topic: str) -> tuple[int, int]:
        """How many messages of a topic the account must have lost, at least and at most."""
        given: dict[Tenure, set[int]] = {}
        last: dict[Tenure, int] = {}
        for post in account.given.get(topic, ()):
            tenure = post.tenure
            if tenure is None:
                self._world.fail("only what an owner gave out is delivered", f"{post} came to {account}")
            # Not the messages of a stay: its subscriptions may be read in any order.
            if post.sequence <= last.get(tenure, 0) and not isinstance(account, TopicStay):
                self._world.fail(
                    "numbers grow", f"{account}: {post} is {post.sequence} after {last[tenure]} of {tenure}"
                )
            last[tenure] = post.sequence
            given.setdefault(tenure, set()).add(post.sequence)
        runs = account.runs.get(topic, [])
        low = high = 0
        for tenure in self._tenures_of(account, topic, runs, given):
            mine = [run for run in runs if (run.owner, run.epoch) == (tenure.owner, tenure.epoch)]
            least, most = self._bounds_in(account, tenure, mine, given.get(tenure, set()), runs)
            low += least
            high += most
        return low, high

    def _tenures_of(
        self, account: Account, topic: str, runs: list[Run], given: dict[Tenure, set[int]]
    ) -> list[Tenure]:
        active: dict[Tenure, None] = {}
        for run in runs:
            tenure = self._tenures.find(topic, run.owner, run.epoch)
            if tenure is None:
                self._world.fail("only owners confirm", f"{account} was active on {topic} of {run}")
            active[tenure] = None
        for tenure in given:
            if tenure not in active:
                self._world.fail("only active subscriptions receive", f"{account} received of {tenure}")
            active[tenure] = None
        return list(active)

    def _bounds_in(
        self, account: Account, tenure: Tenure, mine: list[Run], given: set[int], runs: list[Run]
    ) -> tuple[int, int]:
        count = len(tenure.posts)
        floor = account.floors.get(tenure.topic)
        has_floor = floor is not None and (floor.owner, floor.epoch) == (tenure.owner, tenure.epoch)
        if floor is not None and has_floor:
            first_low = floor.last
        else:
            first_low = 0 if tenure.topic in account.asked else tenure.count_before(account.opened_s)
        early = [number for number in given if number <= first_low]
        if early and not (tenure.retain and early == [first_low]) and tenure.topic not in account.shared:
            self._world.fail(
                "of what was before, only the latest is delivered, if it is retained",
                f"{account} was given {sorted(early)} of {tenure}, which stood at {first_low} before",
            )
        # The latest message from before may have come, and been dropped or not been read.
        replayed = int(tenure.retain and first_low > 0 and not early)
        if len(mine) != 1 or tenure.topic in account.shared:
            # The owner changed and changed back, or another subscription received: it cannot be decided.
            return 0, count - len(given) + replayed
        first_high = first_low if has_floor else tenure.count_until(mine[0].began_s)
        end_low = max(given, default=0)
        end_high = count
        is_last = mine[0] is runs[-1] and mine[0].is_active
        if is_last and account.has_settled:
            end_low = count
        elif is_last and account.closed_s is not None:
            end_high = tenure.count_until(account.closed_s)
        least = sum(number not in given for number in range(first_high + 1, end_low + 1))
        most = sum(number not in given for number in range(first_low + 1, end_high + 1))
        return least, most + replayed
