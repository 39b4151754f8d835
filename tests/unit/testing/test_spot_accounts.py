"""The books of subscriptions: every wrong delivery is noticed at once, every wrong count in the end."""

from collections.abc import Iterator

import pytest

from hansa.ids import routing_id
from hansa.testing import Broken, World
from hansa.testing.scenarios.spot_accounts import Account, Accounts, Floor
from hansa.testing.scenarios.spot_posts import Post, Posts, Tenure, Tenures

TOPIC, RETAINED, SHARED, UNWATCHED = "zone:1:state", "zone:1:events", "shared:1", "zone:2:state"
OWNER, OTHER = routing_id(3), routing_id(9)


class Books:
    """One spot, one account, and time that moves by itself."""

    def __init__(self, world: World) -> None:
        self.now = 0.0
        world.elapsed_s = lambda: self.now  # type: ignore[method-assign]
        self.posts = Posts(world)
        self.tenures = Tenures(world)
        self.accounts = Accounts(
            world,
            self.tenures,
            topics=(TOPIC, RETAINED, SHARED, UNWATCHED),
            watched={TOPIC, RETAINED, SHARED},
            contested={SHARED},
            retained={RETAINED},
        )

    def open(self, text: str = TOPIC, *rivals: Account) -> Account:
        self.now += 1
        return self.accounts.open("spot", text, rivals)

    def tenure(self, topic: str = TOPIC, owner: bytes = OWNER, *, epoch: int = 1) -> Tenure:
        return self.tenures.begin(topic, owner, epoch, retain=topic == RETAINED, node="n1")

    def give_out(self, tenure: Tenure, count: int) -> list[Post]:
        """The owner publishes, and its witness sees it."""
        posts = []
        for _ in range(count):
            self.now += 1
            post = self.posts.open("s1", "n1", tenure.topic, size_bytes=0)
            sequence = len(tenure.sightings) + 1
            self.posts.receive("witness", post.topic, post.payload, sequence)
            self.tenures.saw(tenure, sequence, post)
            posts.append(post)
        return posts

    def activate(self, account: Account, tenure: Tenure) -> None:
        self.now += 1
        self.accounts.activated(account, tenure.topic, tenure.owner, tenure.epoch)

    def deliver(self, account: Account, *posts: Post) -> None:
        for post in posts:
            self.accounts.deliver(account, post)

    def judge(
        self, account: Account, *, unread: int = 0, dropped: int = 0, missed: int = 0, settled: bool = True
    ) -> str:
        """What is broken, or nothing."""
        self.now += 1
        if account.told_missed_count == 0:
            account.told_missed_count = missed
        self.accounts.close(account, unread=unread, dropped=dropped, missed=missed, settled=settled)
        if not any(post.tenure for posts in account.given.values() for post in posts):
            self.tenures.resolve()
        try:
            self.accounts.judge()
        except Broken as error:
            return error.invariant
        return ""


@pytest.fixture
def books() -> Iterator[Books]:
    with World(1) as world:
        yield Books(world)


LOST = "what is lost is reported, and nothing else"
EARLY = "of what was before, only the latest is delivered, if it is retained"


# Deliveries, at once.


def test_patterns_match_what_begins_so(books: Books) -> None:
    exact, pattern, everything = books.open(TOPIC), books.open("zone:1:*"), books.open("*")
    assert [account.matches(TOPIC) for account in (exact, pattern, everything)] == [True, True, True]
    assert [account.matches(UNWATCHED) for account in (exact, pattern, everything)] == [False, False, True]
    assert not books.open("zone:1:state*").matches("zone:1:stat")


def test_a_message_that_was_not_subscribed_is_noticed(books: Books) -> None:
    (post,) = books.give_out(books.tenure(), 1)
    with pytest.raises(Broken, match="only what was subscribed"):
        books.deliver(books.open("zone:2:*"), post)


def test_a_message_that_comes_twice_is_noticed(books: Books) -> None:
    first, second = books.open(), books.open("*")
    (post,) = books.give_out(books.tenure(), 1)
    books.deliver(first, post)
    with pytest.raises(Broken, match="nothing is delivered twice"):
        books.deliver(first, post)
    with pytest.raises(Broken, match="a spot receives once"):
        books.deliver(second, post)


def test_a_retained_message_may_come_again_to_another_subscription(books: Books) -> None:
    (post,) = books.give_out(books.tenure(RETAINED), 1)
    books.deliver(books.open(RETAINED), post)
    books.deliver(books.open(RETAINED), post)


def test_a_message_before_one_of_the_same_publisher_is_noticed_unless_owners_compete(books: Books) -> None:
    first, second = books.give_out(books.tenure(), 2)
    account = books.open()
    books.deliver(account, second)
    with pytest.raises(Broken, match="order is kept"):
        books.deliver(account, first)
    first, second = books.give_out(books.tenure(SHARED), 2)
    books.deliver(books.open(SHARED), second, first)


# Counts, in the end.


def test_an_account_that_received_everything_lost_nothing(books: Books) -> None:
    account, tenure = books.open(), books.tenure()
    books.activate(account, tenure)
    books.deliver(account, *books.give_out(tenure, 4))
    assert books.judge(account) == ""
    assert books.accounts.exact_count == 1


@pytest.mark.parametrize(("unread", "dropped", "missed"), [(0, 2, 0), (0, 0, 2), (2, 0, 0), (0, 1, 1)])
def test_what_did_not_come_is_counted_in_one_way_or_another(
    books: Books, unread: int, dropped: int, missed: int
) -> None:
    account, tenure = books.open(), books.tenure()
    books.activate(account, tenure)
    posts = books.give_out(tenure, 4)
    books.deliver(account, posts[0], posts[3])
    assert books.judge(account, unread=unread, dropped=dropped, missed=missed) == ""


@pytest.mark.parametrize("missed", [0, 1, 3])
def test_a_count_that_is_not_exact_is_noticed(books: Books, missed: int) -> None:
    account, tenure = books.open(), books.tenure()
    books.activate(account, tenure)
    posts = books.give_out(tenure, 4)
    books.deliver(account, posts[0], posts[3])
    assert books.judge(account, missed=missed) == LOST


def test_the_last_messages_count_too_when_everything_has_settled(books: Books) -> None:
    account, tenure = books.open(), books.tenure()
    books.activate(account, tenure)
    books.deliver(account, *books.give_out(tenure, 3)[:2])
    assert books.judge(account) == LOST


def test_what_was_under_way_when_it_closed_may_be_lost_unseen(books: Books) -> None:
    account, tenure = books.open(), books.tenure()
    books.activate(account, tenure)
    books.deliver(account, *books.give_out(tenure, 3)[:2])
    assert books.judge(account, settled=False) == ""


def test_what_was_given_out_after_the_owner_was_lost_is_nobodys(books: Books) -> None:
    account, tenure = books.open(), books.tenure()
    books.activate(account, tenure)
    books.deliver(account, *books.give_out(tenure, 2))
    books.accounts.suspended(account, TOPIC)
    books.give_out(tenure, 3)
    assert books.judge(account) == ""


def test_what_was_given_out_while_the_owner_was_away_is_counted_when_it_is_back(books: Books) -> None:
    account, tenure = books.open(), books.tenure()
    books.activate(account, tenure)
    books.deliver(account, *books.give_out(tenure, 2))
    books.accounts.suspended(account, TOPIC)
    books.give_out(tenure, 3)
    books.activate(account, tenure)
    books.deliver(account, *books.give_out(tenure, 1))
    assert books.judge(account, missed=2) == LOST
    assert books.judge(account, missed=3) == "what was missed is told", "three were told as two"


def test_what_was_missed_is_told(books: Books) -> None:
    account, tenure = books.open(), books.tenure()
    books.activate(account, tenure)
    posts = books.give_out(tenure, 2)
    books.deliver(account, posts[1])
    account.told_missed_count = 7
    assert books.judge(account, missed=1) == "what was missed is told"


@pytest.mark.parametrize(("missed", "outcome"), [(0, ""), (2, ""), (3, LOST)])
def test_messages_between_subscribing_and_being_active_may_or_may_not_count(
    books: Books, missed: int, outcome: str
) -> None:
    account, tenure = books.open(), books.tenure()
    books.give_out(tenure, 2)
    books.activate(account, tenure)
    books.deliver(account, *books.give_out(tenure, 1))
    assert books.judge(account, missed=missed) == outcome


@pytest.mark.parametrize(("missed", "outcome"), [(1, ""), (0, LOST), (2, LOST)])
def test_where_others_were_active_already_it_is_known_where_it_began(
    books: Books, missed: int, outcome: str
) -> None:
    tenure = books.tenure()
    books.give_out(tenure, 3)
    account = books.open()
    # The third is under way to this node.
    account.floors[TOPIC] = Floor(owner=OWNER, epoch=tenure.epoch, last=2)
    books.activate(account, tenure)
    books.deliver(account, *books.give_out(tenure, 1))
    assert books.judge(account, missed=missed) == outcome


def test_only_the_latest_of_a_retained_topic_comes_of_what_was_before(books: Books) -> None:
    tenure = books.tenure(RETAINED)
    posts = books.give_out(tenure, 3)
    account = books.open(RETAINED)
    books.activate(account, tenure)
    books.deliver(account, posts[2], *books.give_out(tenure, 1))
    assert books.judge(account) == ""


@pytest.mark.parametrize(("topic", "which"), [(RETAINED, (1,)), (RETAINED, (1, 2)), (TOPIC, (2,))])
def test_anything_else_of_what_was_before_is_noticed(
    books: Books, topic: str, which: tuple[int, ...]
) -> None:
    tenure = books.tenure(topic)
    posts = books.give_out(tenure, 3)
    account = books.open(topic)
    books.activate(account, tenure)
    books.deliver(account, *(posts[at] for at in which))
    assert books.judge(account) == EARLY


def test_what_the_node_had_asked_for_may_be_older_than_the_subscription(books: Books) -> None:
    tenure = books.tenure()
    posts = books.give_out(tenure, 3)
    account = books.open()
    account.asked.add(TOPIC)
    books.activate(account, tenure)
    books.deliver(account, *posts[1:])
    assert books.judge(account) == ""


def test_numbers_must_grow_within_a_tenure(books: Books) -> None:
    account, tenure = books.open(SHARED), books.tenure(SHARED)
    books.activate(account, tenure)
    first, second = books.give_out(tenure, 2)
    books.deliver(account, second, first)
    assert books.judge(account) == "numbers grow"


def test_two_owners_in_turn_are_counted_one_by_one(books: Books) -> None:
    account, first, second = books.open(SHARED), books.tenure(SHARED), books.tenure(SHARED, OTHER)
    books.activate(account, first)
    books.deliver(account, books.give_out(first, 3)[2])
    books.activate(account, second)
    books.deliver(account, books.give_out(second, 3)[2])
    assert books.judge(account, missed=3) == LOST
    account.told_missed_count = 4
    assert books.judge(account, missed=4) == ""


def test_where_the_owner_changed_back_only_an_upper_bound_is_known(books: Books) -> None:
    account, first, second = books.open(SHARED), books.tenure(SHARED), books.tenure(SHARED, OTHER)
    for tenure in (first, second, first):
        books.activate(account, tenure)
        books.deliver(account, books.give_out(tenure, 2)[1])
    assert books.judge(account) == LOST, "of the one in between it is known"
    account.told_missed_count = 3
    assert books.judge(account, missed=3) == ""
    account.told_missed_count = 4
    assert books.judge(account, missed=4) == LOST


def test_what_another_subscription_of_the_spot_received_is_not_lost(books: Books) -> None:
    pattern, tenure = books.open("zone:1:*"), books.tenure()
    books.activate(pattern, tenure)
    exact = books.open(TOPIC, pattern)
    books.activate(exact, tenure)
    books.deliver(exact, *books.give_out(tenure, 2))
    assert books.judge(pattern) == ""
    assert pattern.shared == exact.shared == {TOPIC}


# Stays: what a spot has of a topic through all its subscriptions.

STAYED = "what a spot missed is told, whatever it subscribed meanwhile"


def exchanged(books: Books, tenure: Tenure, *, is_roomy: bool = True) -> Account:
    """A spot heard two messages by a pattern, and subscribes by name instead while the owner is away."""
    pattern = books.open("zone:1:*")
    pattern.is_roomy = True
    books.accounts.stay(pattern)
    books.activate(pattern, tenure)
    books.deliver(pattern, *books.give_out(tenure, 2))
    books.accounts.suspended(pattern, tenure.topic)
    assert books.accounts.away("spot") == [tenure.topic]
    exact = books.open(tenure.topic, pattern)
    exact.is_roomy = is_roomy
    books.accounts.stay(exact)
    books.accounts.close(pattern, unread=0, dropped=0, missed=0, settled=False)
    return exact


@pytest.mark.parametrize(("told", "outcome"), [(3, ""), (0, STAYED), (2, STAYED), (4, STAYED)])
def test_a_spot_that_stays_is_told_what_it_missed_through_whichever_subscription(
    books: Books, told: int, outcome: str
) -> None:
    tenure = books.tenure()
    exact = exchanged(books, tenure)
    books.give_out(tenure, 3)
    books.activate(exact, tenure)
    assert books.accounts.away("spot") == []
    books.accounts.missed("spot", TOPIC, told)
    books.deliver(exact, *books.give_out(tenure, 1))
    assert books.judge(exact, missed=min(told, 3)) == outcome


def test_of_a_subscription_that_may_have_dropped_nobody_can_say(books: Books) -> None:
    tenure = books.tenure()
    exact = exchanged(books, tenure, is_roomy=False)
    books.give_out(tenure, 3)
    books.activate(exact, tenure)
    books.deliver(exact, *books.give_out(tenure, 1))
    assert books.judge(exact, dropped=3) == ""
    assert books.accounts.exact_stays_count == 0


def test_a_retained_message_that_comes_twice_to_a_spot_that_stays_is_noticed(books: Books) -> None:
    tenure = books.tenure(RETAINED)
    exact = exchanged(books, tenure)
    (latest,) = [post for number, post, _ in tenure.sightings if number == 2]
    books.activate(exact, tenure)
    with pytest.raises(Broken, match="a spot that stays receives once"):
        books.deliver(exact, latest)


def test_a_stay_ends_with_its_last_subscription(books: Books) -> None:
    tenure = books.tenure(RETAINED)
    exact = exchanged(books, tenure)
    books.accounts.close(exact, unread=0, dropped=0, missed=0, settled=False)
    assert books.accounts.away("spot") == []
    again = books.open(RETAINED)
    again.is_roomy = True
    books.accounts.stay(again)
    (latest,) = [post for number, post, _ in tenure.sightings if number == 2]
    books.activate(again, tenure)
    books.deliver(again, latest)
    assert books.judge(again) == ""
    assert books.accounts.exact_stays_count == 1


def test_an_unwatched_topic_says_nothing_about_the_most(books: Books) -> None:
    account = books.open("zone:*")
    books.accounts.activated(account, UNWATCHED, OWNER, 5)
    assert books.judge(account, missed=99) == ""


def test_receiving_without_being_active_is_noticed(books: Books) -> None:
    account, tenure = books.open(), books.tenure()
    books.deliver(account, *books.give_out(tenure, 1))
    assert books.judge(account) == "only active subscriptions receive"


def test_a_confirmation_of_somebody_who_does_not_own_is_noticed(books: Books) -> None:
    account = books.open()
    books.accounts.activated(account, TOPIC, OTHER, 1)
    assert books.judge(account) == "only owners confirm"
    with pytest.raises(Broken, match="active on its topics only"):
        books.accounts.activated(account, RETAINED, OWNER, 1)


def test_the_final_round_is_expected_until_it_has_come(books: Books) -> None:
    account = books.open()
    first, second = books.give_out(books.tenure(), 2)
    books.accounts.expect(account, first)
    books.accounts.expect(account, second)
    books.deliver(account, first)
    assert books.accounts.unmet() == [f"{second} has not come to {account}"]
    books.deliver(account, second)
    assert books.accounts.unmet() == []
