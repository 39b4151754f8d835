"""What one node says and does while a topic is handed over: by it, to it, and past it."""

import random
from dataclasses import replace

import pytest

from hansa.errors import BadRecord, Conflict, NotOwner, PeerAway, PeerError
from hansa.limits import (
    TOPIC_AGAIN_S,
    TOPIC_CLOSING_S_MAX,
    TOPIC_FORWARD_S_MAX,
    TOPIC_HOLD_COUNT_MAX,
    TOPIC_HOLD_S_MAX,
    TOPIC_TAKEN_S_MAX,
)
from hansa.topics.effects import Effect, Resume
from hansa.topics.events import (
    MessagesMissed,
    PublishesRefused,
    SubscriptionSuspended,
    TopicLost,
    TopicMoved,
    TopicRemoved,
)
from hansa.topics.moving import Adoption, HeldMessages
from hansa.topics.topic_state import TopicState
from hansa.topics.wants import WantState
from hansa.wire.topics import (
    Mark,
    Message,
    Move,
    MoveStep,
    Publish,
    Query,
    QueryResp,
    Subscribe,
    TopicAnnounce,
    TopicRemove,
    Unsubscribe,
    topic_digest,
)
from tests.support.spot_mesh import EPOCH, NODE, A, B, FakeSubscriber, MeshBench, X, Y, sent, told

T = b"t"
STATE = TopicState(source=X, founder=X, epoch=EPOCH, sequence=7, retain=False, latest=None, subscribers=())
CLAIM = 50


def move(step: MoveStep, node: bytes, number: int = 1) -> Move:
    return Move(step=step, number=number, node=node)


def moving(number: int = 1, *, to: bytes = Y, sequence: int = 0) -> TopicAnnounce:
    """What X says when it closes the topic."""
    mark = Mark(epoch=EPOCH, sequence=sequence)
    return TopicAnnounce(topic="t", mark=mark, claim=CLAIM, move=move(MoveStep.MOVING, to, number))


def moved(number: int = 1, *, sequence: int = 0, confirm: bool = True) -> TopicAnnounce:
    """What Y says when it has taken the topic from X."""
    mark = Mark(epoch=EPOCH, sequence=sequence, confirm=confirm, founder=X)
    return TopicAnnounce(topic="t", mark=mark, claim=CLAIM + 1, move=move(MoveStep.MOVED, X, number))


def ended(number: int = 1) -> TopicAnnounce:
    return TopicAnnounce(topic="t", move=move(MoveStep.ENDED, NODE, number))


def moves_to(effects: list[Effect], peer: bytes) -> list[MoveStep]:
    """The steps that a peer is told."""
    commands = [command for to, command in sent(effects) if to == peer]
    found = [command.move for command in commands if isinstance(command, TopicAnnounce | TopicRemove)]
    return [one.step for one in found if one is not None]


def published_to(effects: list[Effect], peer: bytes) -> list[bytes]:
    return [command.payload for to, command in sent(effects) if to == peer and isinstance(command, Publish)]


def owning(*peers: bytes, retain: bool = False) -> MeshBench:
    """A node that owns the topic, by a claim, and has these peers."""
    bench = MeshBench()
    for peer in peers:
        bench.join(peer)
    bench.create("t", "spot", retain=retain, claim=CLAIM)
    return bench


def close(bench: MeshBench, to: bytes = Y) -> tuple[TopicState, list[Effect]]:
    return bench.mesh.close(T, to, number=1)


def taken_by_y(bench: MeshBench) -> list[Effect]:
    """The new owner of our topic announces it."""
    mark = Mark(epoch=bench.outlet("t").epoch, sequence=bench.outlet("t").sequence, founder=NODE)
    announce = TopicAnnounce(topic="t", mark=mark, claim=CLAIM + 1, move=move(MoveStep.MOVED, NODE))
    return bench.hear(Y, announce)


def hold_of(bench: MeshBench) -> HeldMessages:
    return bench.mesh.moves.holds["t"]


def adopt(bench: MeshBench, state: TopicState = STATE, *, number: int = 1) -> list[Effect]:
    until = bench.now + TOPIC_CLOSING_S_MAX
    return bench.mesh.adopt(
        Adoption(topic=T, spot="heir", state=state, claim=CLAIM, number=number, until=until)
    )


# -- the old owner


def test_an_owner_that_closes_says_how_far_it_is_and_gives_what_the_next_one_needs() -> None:
    bench = owning(X, Y, retain=True)
    bench.hear(X, Subscribe(topic="t"))
    bench.subscribe("t")
    bench.publish("t", b"1", b"2")
    state, effects = close(bench)
    assert state == TopicState(
        source=NODE,
        founder=NODE,
        epoch=bench.outlet("t").epoch,
        sequence=2,
        retain=True,
        latest=b"2",
        subscribers=(X, NODE),
    )
    mark = Mark(epoch=state.epoch, sequence=2, retain=True)
    announce = TopicAnnounce(topic="t", mark=mark, claim=CLAIM, move=move(MoveStep.MOVING, Y))
    assert sent(effects) == [(X, announce), (Y, announce)]
    assert TopicState.decode(state.encode()) == state


def test_what_cannot_be_handed_over_stays_open() -> None:
    bench = owning(X, Y)
    bench.join_raw(A)
    with pytest.raises(NotOwner):
        bench.mesh.close(b"u", Y, number=1)
    for nobody in (A, B):
        with pytest.raises(PeerAway):
            close(bench, nobody)
    close(bench)
    with pytest.raises(Conflict):
        close(bench, X)


def test_a_closed_topic_publishes_nothing_and_keeps_what_comes_in_order_for_the_new_owner() -> None:
    bench = owning(X, Y)
    bench.hear(X, Subscribe(topic="t"))
    close(bench)
    assert (bench.exchange.outlets_by_name, bench.mesh.route("t")) == ({}, None)
    assert hold_of(bench).put(b"ours")
    bench.hear(X, Publish(topic="t", payload=b"1"))
    bench.hear(Y, Publish(topic="t", payload=b"2"))
    bench.hear(X, TopicRemove(topic="t", move=move(MoveStep.END, X)))
    bench.hear(X, Subscribe(topic="t"))
    assert bench.posted(X) == []
    effects = taken_by_y(bench)
    assert moves_to(effects, X) == [MoveStep.MOVED]
    assert (X, TopicRemove(topic="t", refused_count=0)) in sent(effects)
    assert published_to(effects, Y) == [b"1", b"2", b"ours"]
    assert moves_to(effects, Y) == [MoveStep.MOVED, MoveStep.END]
    commands = [command for to, command in sent(effects) if to == Y]
    end = TopicRemove(topic="t", move=move(MoveStep.END, X))
    assert commands.index(end) == commands.index(Publish(topic="t", payload=b"ours")) - 1
    assert Resume() in effects
    assert TopicMoved(topic="t", source=NODE, target=Y, epoch=CLAIM + 1) in told(effects)
    assert bench.mesh.route("t") == (Y, T)
    # Who had not heard of it yet is forwarded, until all have said END.
    assert published_to(bench.hear(Y, Publish(topic="t", payload=b"3")), Y) == [b"3"]
    effects = bench.hear(Y, TopicRemove(topic="t", move=move(MoveStep.END, Y)))
    assert moves_to(effects, Y) == [MoveStep.END, MoveStep.LAST]
    assert bench.mesh.moves.leaving == {}


def test_a_hand_over_that_is_withdrawn_publishes_what_was_kept_and_lets_all_go_on() -> None:
    bench = owning(X, Y)
    bench.hear(Y, Subscribe(topic="t"))
    close(bench)
    hold_of(bench).put(b"ours")
    bench.hear(X, Publish(topic="t", payload=b"theirs"))
    bench.hear(X, Subscribe(topic="t"))
    effects = bench.mesh.stay(T)
    assert [moves_to(effects, peer) for peer in (X, Y)] == [[MoveStep.STAYS]] * 2
    assert [one.payload for one in bench.posted(Y) if isinstance(one, Message)] == [b"theirs", b"ours"]
    announced = [command for to, command in sent(effects) if to == X and isinstance(command, TopicAnnounce)]
    assert [one.mark.confirm for one in announced if one.mark is not None] == [True]
    assert set(bench.exchange.outlets_by_name) == {"t"}
    assert (bench.mesh.moves.holds, bench.mesh.moves.leaving) == ({}, {})
    assert bench.mesh.stay(T) == []


def test_a_node_that_joins_meanwhile_hears_first_that_the_topic_is_on_its_way() -> None:
    bench = owning(Y)
    close(bench)
    bench.connect(X)
    effects = bench.hear(X, Query(is_extended=True))
    assert moves_to(effects, X) == [MoveStep.MOVING]
    assert isinstance(sent(effects)[0][1], TopicAnnounce)
    bench.connect(A)
    assert moves_to(bench.hear(A, Query()), A) == []


def test_a_new_owner_that_never_comes_is_waited_for_in_bounds_and_the_refused_are_told() -> None:
    bench = owning(X, Y)
    close(bench)
    bench.hear(X, Publish(topic="t", payload=b"1"))
    bench.mesh.taken(T)
    assert bench.mesh.deadline() == 0.0
    bench.tick(0)
    effects = bench.tick(TOPIC_TAKEN_S_MAX)
    assert [type(event) for event in told(effects) if isinstance(event, TopicLost)] == [TopicLost]
    assert (X, TopicRemove(topic="t", refused_count=1)) in sent(effects)
    assert bench.exchange.outlets == {}


@pytest.mark.parametrize("is_new", [True, False], ids=["create", "adopt"])
def test_a_topic_that_comes_back_before_the_new_owner_announced_it_is_owned_again(is_new: bool) -> None:
    """The new owner died: this node is the next in line, with what was sealed or with nothing."""
    bench = owning(X, Y)
    bench.hear(X, Subscribe(topic="t"))
    state, _ = close(bench)
    bench.hear(X, Publish(topic="t", payload=b"kept"))
    bench.mesh.taken(T)
    effects = bench.create("t", "heir", claim=CLAIM + 2) if is_new else adopt(bench, state, number=2)
    assert (X, TopicRemove(topic="t", refused_count=1)) in sent(effects)
    assert bench.outlet("t").spot == "heir"
    assert bench.mesh.moves.leaving == {}
    assert bench.mesh._digest == topic_digest(T)
    assert bench.exchange.open_outlets.keys() == {T}


def test_publishers_send_what_they_hold_to_an_old_owner_that_took_the_topic_again() -> None:
    bench = MeshBench()
    bench.join(X)
    bench.join(Y)
    announce = TopicAnnounce(topic="t", mark=Mark(epoch=EPOCH, sequence=5), claim=CLAIM)
    bench.hear(X, announce)
    bench.hear(X, replace(announce, move=move(MoveStep.MOVING, Y)))
    assert bench.mesh.moves.holds["t"].put(b"held")
    again = Mark(epoch=EPOCH, sequence=5, founder=X)
    effects = bench.hear(
        X, TopicAnnounce(topic="t", mark=again, claim=CLAIM + 2, move=move(MoveStep.MOVED, X))
    )
    assert published_to(effects, X) == [b"held"]
    assert bench.mesh.moves.holds == {}


def test_an_older_claim_of_the_target_is_not_taken_for_its_having_taken_the_topic() -> None:
    bench = owning(Y)
    close(bench)
    bench.hear(Y, TopicAnnounce(topic="t", claim=CLAIM - 1))
    assert set(bench.exchange.outlets) == {T}


def test_a_paused_owner_that_wakes_up_yields_to_the_higher_claim_and_not_to_a_lower_id() -> None:
    bench = owning(A, X)
    bench.hear(A, TopicAnnounce(topic="t", claim=CLAIM - 1))
    assert set(bench.exchange.outlets) == {T}
    bench.hear(X, TopicAnnounce(topic="t", claim=CLAIM + 1))
    assert (bench.exchange.outlets, bench.mesh.owner(T)) == ({}, X)


def test_forwarding_ends_when_a_publisher_leaves_or_takes_too_long() -> None:
    for way in ("leaves", "is late"):
        bench = owning(X, Y)
        close(bench)
        bench.hear(Y, TopicRemove(topic="t", move=move(MoveStep.END, Y)))
        taken_by_y(bench)
        if way == "leaves":
            effects = bench.leave(X)
        else:
            bench.tick(0)
            effects = bench.tick(TOPIC_FORWARD_S_MAX)
        assert moves_to(effects, Y)[-1] == MoveStep.LAST
        assert bench.mesh.moves.leaving == {}


def test_forwarding_goes_on_as_long_as_a_slow_publisher_is_heard_and_no_longer_than_it_holds() -> None:
    bench = owning(X, Y)
    close(bench)
    bench.hear(Y, TopicRemove(topic="t", move=move(MoveStep.END, Y)))
    taken_by_y(bench)
    bench.tick(0)
    for round_number in range(int(TOPIC_HOLD_S_MAX / TOPIC_FORWARD_S_MAX) - 1):
        effects = bench.hear(X, Publish(topic="t", payload=b"late"))
        assert published_to(effects, Y) == [b"late"], round_number
        assert moves_to(bench.tick(TOPIC_FORWARD_S_MAX), Y) == []
    bench.hear(X, Publish(topic="t", payload=b"too late"))
    assert moves_to(bench.tick(TOPIC_FORWARD_S_MAX), Y) == [MoveStep.LAST]
    assert bench.mesh.moves.leaving == {}


def test_what_was_kept_is_refused_when_the_new_owner_has_waited_for_it_no_more() -> None:
    """Their publishers may have sent it others since: these would come first."""
    bench = owning(X, Y)
    close(bench)
    bench.hear(X, Publish(topic="t", payload=b"1"))
    bench.leave(Y)
    bench.connect(Y)
    # It tells so by its answer only: it took the topic before it was connected again.
    effects = bench.hear(Y, QueryResp(topics=("t",), is_extended=True, claims=(CLAIM + 1,)))
    assert (X, TopicRemove(topic="t", refused_count=1)) in sent(effects)
    effects = bench.hear(X, Publish(topic="t", payload=b"2"))
    assert sent(effects) == [(X, TopicRemove(topic="t", refused_count=1))]


def test_a_new_owner_that_comes_too_late_is_told_that_nothing_is_passed_on() -> None:
    bench = owning(X, Y)
    close(bench)
    bench.mesh.taken(T)
    bench.tick(0)
    bench.tick(TOPIC_TAKEN_S_MAX)
    assert bench.mesh.moves.leaving == {}
    announce = TopicAnnounce(
        topic="t", mark=Mark(epoch=1, sequence=0), claim=CLAIM + 1, move=move(MoveStep.MOVED, NODE)
    )
    last = TopicRemove(topic="t", move=move(MoveStep.LAST, NODE))
    assert (Y, last) in sent(bench.hear(Y, announce))


def test_who_subscribes_here_meanwhile_begins_at_the_new_owner() -> None:
    bench = owning(Y, retain=True)
    bench.publish("t", b"latest")
    close(bench)
    one = bench.subscribe("t")
    assert one.matched[T].state is WantState.PENDING
    effects = taken_by_y(bench)
    assert (Y, Subscribe(topic="t")) in sent(effects)
    assert [event for event in told(effects) if isinstance(event, SubscriptionSuspended)] == []
    mark = Mark(epoch=one.matched[T].feed.epoch, sequence=1, retain=True, confirm=True, founder=NODE)
    bench.hear(Y, TopicAnnounce(topic="t", mark=mark, claim=CLAIM + 1))
    bench.hear(Y, Message(topic="t", payload=b"latest", sequence=1))
    assert [payload for _, payload, _ in one.received] == [b"latest"]


def test_who_subscribes_here_meanwhile_is_active_when_the_topic_stays() -> None:
    bench = owning(Y, retain=True)
    bench.publish("t", b"latest")
    close(bench)
    one = bench.subscribe("t")
    hold_of(bench).put(b"next")
    bench.mesh.stay(T)
    assert one.matched[T].state is WantState.ACTIVE
    assert [payload for _, payload, _ in one.received] == [b"latest", b"next"]


# -- publishers


def holding(*, sequence: int = 0) -> MeshBench:
    """A node that publishes a topic of X's, which is on its way to Y."""
    bench = MeshBench()
    bench.join(X)
    bench.join(Y)
    bench.hear(X, TopicAnnounce(topic="t", claim=CLAIM))
    assert bench.mesh.route("t") == (X, T)
    effects = bench.hear(X, moving(sequence=sequence))
    assert sent(effects) == [(X, TopicRemove(topic="t", move=move(MoveStep.END, NODE)))]
    assert bench.mesh.route("t") is None
    hold_of(bench).put(b"1")
    return bench


def test_a_publisher_holds_until_the_new_owner_has_all_that_came_before() -> None:
    bench = holding()
    assert published_to(bench.hear(Y, moved(confirm=False)), Y) == []
    hold_of(bench).put(b"2")
    # Not that of another hand-over.
    assert published_to(bench.hear(Y, ended(2)), Y) == []
    effects = bench.hear(Y, ended())
    assert published_to(effects, Y) == [b"1", b"2"]
    assert moves_to(effects, Y) == [MoveStep.SWITCHED]
    assert Resume() in effects
    assert bench.mesh.route("t") == (Y, T)
    assert bench.mesh.peers[Y].published_count == 2


def test_a_publisher_that_hears_of_the_new_owner_first_says_end_then() -> None:
    bench = MeshBench()
    bench.join(X)
    bench.join(Y)
    bench.hear(X, TopicAnnounce(topic="t", claim=CLAIM))
    effects = bench.hear(Y, moved(confirm=False))
    assert moves_to(effects, X) == [MoveStep.END]
    assert moves_to(bench.hear(X, moving()), X) == []
    assert moves_to(bench.hear(Y, ended()), Y) == [MoveStep.SWITCHED]


def test_who_has_not_published_through_the_old_owner_keeps_nobody_waiting() -> None:
    bench = MeshBench()
    bench.join(Y)
    # It is not connected with the old owner.
    assert moves_to(bench.hear(Y, moved(confirm=False)), Y) == [MoveStep.SWITCHED]
    bench.join(X)
    # It is, and hears of the new one first.
    assert moves_to(bench.hear(X, moving()), X) == [MoveStep.END]
    assert (bench.mesh.moves.holds, bench.mesh.route("t")) == ({}, (Y, T))


def test_a_topic_that_stays_gets_what_was_held() -> None:
    bench = holding()
    stays = TopicAnnounce(topic="t", claim=CLAIM, move=move(MoveStep.STAYS, Y))
    assert published_to(bench.hear(X, stays), X) == [b"1"]
    assert bench.mesh.route("t") == (X, T)


def test_a_publisher_whose_connection_to_the_old_owner_ends_asks_the_new_one() -> None:
    bench = holding()
    effects = bench.leave(X)
    # Until its next owner has spoken nothing has happened to the topic.
    assert [event for event in told(effects) if isinstance(event, TopicRemoved)] == []
    effects = bench.hear(Y, moved(confirm=False))
    assert moves_to(effects, Y) == [MoveStep.END]
    assert published_to(bench.hear(Y, ended()), Y) == [b"1"]


def test_what_is_held_goes_to_whoever_else_comes_to_own_the_topic() -> None:
    bench = holding()
    bench.join(A)
    bench.leave(X)
    assert published_to(bench.hear(A, TopicAnnounce(topic="t", claim=CLAIM + 5)), A) == [b"1"]


def test_an_old_owner_that_claims_the_topic_anew_is_published_to_again() -> None:
    bench = holding()
    bench.hear(X, TopicRemove(topic="t", move=move(MoveStep.MOVED, Y)))
    bench.hear(Y, TopicAnnounce(topic="t", claim=CLAIM + 1, move=move(MoveStep.MOVED, X)))
    # It has lost its claim, and X has made the topic again; the news of that may come in either order.
    announce = TopicAnnounce(topic="t", mark=Mark(epoch=1, sequence=0), claim=CLAIM + 2)
    assert published_to(bench.hear(X, announce), X) == [b"1"]
    bench.hear(Y, TopicRemove(topic="t"))
    assert (bench.mesh.route("t"), bench.mesh.moves.holds) == ((X, T), {})


def test_what_nobody_comes_to_own_is_told_in_the_end() -> None:
    bench = holding()
    bench.leave(X)
    effects = bench.tick(TOPIC_HOLD_S_MAX)
    assert PublishesRefused(topic="t", owner=X, count=1) in told(effects)
    assert TopicRemoved(topic="t", owner=X) in told(effects)
    assert (bench.mesh.moves.holds, bench.mesh.route("t")) == ({}, None)


def test_a_new_owner_that_leaves_before_it_has_spoken_leaves_the_topic_without_one() -> None:
    bench = holding()
    bench.leave(X)
    assert TopicRemoved(topic="t", owner=X) in told(bench.leave(Y))


def test_an_old_owner_that_is_back_and_knows_of_nothing_is_published_to_again() -> None:
    bench = holding()
    bench.leave(X)
    effects = bench.join(X, "t")
    assert published_to(effects, X) == [b"1"]


def test_a_hold_takes_so_much_and_no_more() -> None:
    hold = HeldMessages(T)
    assert all(hold.put(b"") for _ in range(TOPIC_HOLD_COUNT_MAX))
    assert not hold.put(b"")
    assert len(hold.take_all()) == TOPIC_HOLD_COUNT_MAX
    assert hold.put(bytes(1 << 30))
    assert not hold.put(b"")


# -- the new owner


def test_a_new_owner_takes_the_subscribers_along_and_goes_on_counting() -> None:
    bench = MeshBench()
    for peer in (A, X, Y):
        bench.join(peer)
    state = replace(STATE, retain=True, latest=b"7", subscribers=(A, B))
    assert adopt(bench, state) == []
    bench.hear(X, TopicAnnounce(topic="t", claim=CLAIM - 1))
    effects = bench.hear(X, moving(to=NODE, sequence=7))
    announced = {to: one for to, one in sent(effects) if isinstance(one, TopicAnnounce)}
    assert {peer: one.mark.confirm for peer, one in announced.items() if one.mark} == {
        A: True,
        X: False,
        Y: False,
    }
    assert announced[A].move == move(MoveStep.MOVED, X)
    assert announced[A].claim == CLAIM
    bench.publish("t", b"8")
    assert bench.posted(A) == [Message(topic="t", payload=b"8", sequence=8)]
    # Who subscribes gets the latest one, and what this node has published is what it has published.
    assert bench.exchange.published_count == 1
    late = bench.hear(Y, Subscribe(topic="t"))
    assert [one.payload for _, one in sent(late) if isinstance(one, Message)] == [b"8"]


def test_a_new_owner_that_never_hears_of_the_closing_opens_the_topic_a_little_later() -> None:
    bench = MeshBench()
    bench.join(X)
    adopt(bench)
    assert bench.exchange.outlets == {}
    bench.tick(TOPIC_CLOSING_S_MAX)
    assert set(bench.exchange.outlets) == {T}


@pytest.mark.parametrize("way", ["lost", "destroyed"])
def test_a_topic_that_is_not_open_yet_may_be_lost_or_destroyed(way: str) -> None:
    bench = MeshBench()
    bench.join(X)
    adopt(bench)
    if way == "lost":
        effects = bench.mesh.lose(T, "its lease has ended")
        assert told(effects) == [TopicLost(topic="t", reason="its lease has ended")]
    else:
        bench.destroy("t", "heir")
    assert bench.mesh.moves.adoptions == {}
    assert sent(bench.tick(TOPIC_CLOSING_S_MAX)) == []
    assert bench.exchange.outlets == {}


def test_a_new_owner_that_opens_it_so_says_end_itself_behind_what_it_has_published() -> None:
    bench = MeshBench()
    bench.join(X)
    bench.hear(X, TopicAnnounce(topic="t", claim=CLAIM - 1))
    adopt(bench)
    effects = bench.tick(TOPIC_CLOSING_S_MAX)
    assert moves_to(effects, X)[0] is MoveStep.END
    # What it published before is still on its way back here.
    assert (set(bench.exchange.outlets), bench.exchange.outlets_by_name) == ({T}, {})
    assert hold_of(bench).put(b"later")
    bench.hear(X, Publish(topic="t", payload=b"sooner"))
    bench.hear(X, TopicRemove(topic="t", move=move(MoveStep.END, NODE)))
    assert (bench.outlet("t").sequence, set(bench.exchange.outlets_by_name)) == (9, {"t"})


def test_a_new_owner_that_comes_when_the_topic_had_none_already_keeps_it() -> None:
    """What this node has held goes through its own topic, whenever that is opened."""
    bench = MeshBench()
    one = bench.subscribe("t")
    bench.join(X)
    bench.hear(X, TopicAnnounce(topic="t", claim=CLAIM - 1))
    bench.confirm(X, "t", 7)
    bench.hear(X, moving(to=NODE, sequence=7))
    hold_of(bench).put(b"held")
    bench.hear(X, TopicRemove(topic="t"))
    assert hold_of(bench).is_orphaned
    adopt(bench)
    effects = bench.hear(X, TopicRemove(topic="t", move=move(MoveStep.LAST, X)))
    effects += bench.tick(TOPIC_HOLD_S_MAX)
    assert [payload for _, payload, _ in one.received] == [b"held"]
    kinds = {type(event) for event in told(effects)}
    assert kinds & {SubscriptionSuspended, PublishesRefused, TopicRemoved} == set()


@pytest.mark.parametrize("way", ["announced", "subscribed"])
def test_who_is_to_take_a_topic_knows_whether_it_retains(way: str) -> None:
    bench = MeshBench()
    bench.join(X, "t")
    assert not bench.mesh.wants.retains(T)
    if way == "announced":
        bench.hear(X, TopicAnnounce(topic="t", mark=Mark(epoch=EPOCH, sequence=0, retain=True)))
    else:
        bench.subscribe("t")
        bench.confirm(X, "t", retain=True)
    assert bench.mesh.wants.retains(T)
    bench.hear(X, TopicRemove(topic="t"))
    bench.hear(X, TopicAnnounce(topic="t", mark=Mark(epoch=EPOCH + 1, sequence=0)))
    if way == "announced":
        assert not bench.mesh.wants.retains(T)


def test_a_new_owner_answers_ends_in_their_turn_and_questions_when_it_knows() -> None:
    bench = MeshBench()
    for peer in (A, X, Y):
        bench.join(peer)
    bench.hear(X, TopicAnnounce(topic="t", claim=CLAIM - 1))
    bench.hear(X, moving(to=NODE, sequence=7))
    hold_of(bench).put(b"ours")
    adopt(bench)
    assert bench.exchange.outlets_by_name == {}
    question = TopicRemove(topic="t", move=move(MoveStep.END, Y))
    assert moves_to(bench.hear(Y, question), Y) == []
    assert moves_to(bench.hear(X, TopicRemove(topic="t", move=move(MoveStep.END, A))), A) == [MoveStep.ENDED]
    # Our own END comes back, too, and only then do our own spots publish.
    bench.hear(X, TopicRemove(topic="t", move=move(MoveStep.END, NODE)))
    assert (bench.outlet("t").sequence, set(bench.exchange.outlets_by_name)) == (8, {"t"})
    with pytest.raises(Conflict):
        close(bench, Y)
    last = TopicRemove(topic="t", move=move(MoveStep.LAST, X))
    assert moves_to(bench.hear(X, last), Y) == [MoveStep.ENDED]
    for peer in (A, Y):
        bench.hear(peer, TopicRemove(topic="t", move=move(MoveStep.SWITCHED, peer)))
    close(bench, Y)


def test_nobody_is_told_that_its_end_has_come_while_the_old_owner_may_still_pass_something_on() -> None:
    """It says when it waits for nobody any more, and one that says nothing is not connected for long."""
    bench = MeshBench()
    for peer in (A, X):
        bench.join(peer)
    bench.hear(X, TopicAnnounce(topic="t", claim=CLAIM - 1))
    bench.hear(X, moving(to=NODE, sequence=7))
    adopt(bench)
    waited_s = TOPIC_CLOSING_S_MAX + TOPIC_FORWARD_S_MAX
    assert moves_to(bench.tick(waited_s), A) == []
    bench.hear(X, Publish(topic="t", payload=b"through the old owner"))
    assert moves_to(bench.tick(2 * TOPIC_FORWARD_S_MAX), A) == []
    assert moves_to(bench.tick(TOPIC_HOLD_S_MAX - waited_s), A) == [MoveStep.ENDED]


def test_when_the_old_owner_is_gone_nobody_waits_for_it() -> None:
    bench = MeshBench()
    for peer in (A, X):
        bench.join(peer)
    adopt(bench)
    effects = bench.leave(X)
    assert set(bench.exchange.outlets_by_name) == {"t"}
    assert moves_to(effects, A) == [MoveStep.MOVED]
    question = TopicRemove(topic="t", move=move(MoveStep.END, A))
    assert moves_to(bench.hear(A, question), A) == [MoveStep.ENDED]


def test_peers_that_know_nothing_of_it_are_told_once_more_who_owns_the_topic() -> None:
    bench = MeshBench()
    bench.join(X)
    bench.join_raw(A)
    adopt(bench)
    bench.tick(TOPIC_CLOSING_S_MAX)
    effects = bench.hear(X, TopicRemove(topic="t", move=move(MoveStep.MOVED, NODE)))
    assert [(to, type(one)) for to, one in sent(effects)] == [(A, TopicAnnounce)]
    # The removal may reach such a peer last: then it has forgotten whose the topic is, until a while later.
    assert sent(bench.tick(0)) == []
    assert sent(bench.tick(TOPIC_AGAIN_S)) == sent(effects)
    assert sent(bench.tick(TOPIC_AGAIN_S)) == []


def test_a_topic_that_has_moved_on_is_not_announced_once_more() -> None:
    bench = MeshBench()
    bench.join(X)
    bench.join_raw(A)
    adopt(bench)
    bench.tick(TOPIC_CLOSING_S_MAX)
    bench.hear(X, TopicRemove(topic="t", move=move(MoveStep.MOVED, NODE)))
    bench.tick(0)
    bench.destroy("t", "heir")
    assert sent(bench.tick(TOPIC_AGAIN_S)) == []
    assert bench.mesh.moves.again == {}


@pytest.mark.parametrize("value", [b"", b"{}", b"[1]\n", STATE.encode().replace(b'"0', b'"x', 1), b"\xff\n"])
def test_a_state_that_cannot_be_read_is_refused(value: bytes) -> None:
    with pytest.raises(BadRecord):
        TopicState.decode(value)


# -- subscribers


def reading(sequence: int = 3) -> tuple[MeshBench, FakeSubscriber]:
    bench = MeshBench()
    one = bench.subscribe("t")
    bench.join(X)
    bench.join(Y)
    bench.hear(X, TopicAnnounce(topic="t", claim=CLAIM))
    bench.confirm(X, "t", sequence)
    return bench, one


def test_a_subscriber_takes_the_old_owners_messages_first_whatever_comes_first() -> None:
    bench, one = reading()
    bench.message(X, "t", 4)
    effects = bench.hear(Y, moved(sequence=5))
    bench.message(Y, "t", 6, 7)
    bench.message(X, "t", 5)
    assert [sequence for *_, sequence in one.received] == [4, 5]
    effects += bench.hear(X, moving(sequence=5))
    bench.message(Y, "t", 8)
    assert [sequence for *_, sequence in one.received] == [6, 7, 8]
    assert [type(event) for event in told(effects)] == [TopicMoved]
    assert bench.mesh.tally.missed_count == 0
    # It is on the new owner's list by then.
    assert not any(isinstance(command, Subscribe | Unsubscribe) for _, command in sent(effects))


def test_what_the_old_owner_takes_along_when_it_dies_is_told_exactly() -> None:
    bench, one = reading()
    bench.message(X, "t", 4)
    bench.hear(Y, moved(sequence=9))
    bench.message(Y, "t", 10)
    assert MessagesMissed(subscription="t", topic="t", count=5) in told(bench.leave(X))
    assert [sequence for *_, sequence in one.received] == [4, 10]


def test_a_subscriber_that_was_not_taken_along_subscribes_and_is_told_its_gap() -> None:
    bench, one = reading()
    bench.hear(X, moving(sequence=3))
    effects = bench.hear(Y, moved(sequence=3, confirm=False))
    assert (Y, Subscribe(topic="t")) in sent(effects)
    assert SubscriptionSuspended(subscription="t", topic="t", owner=X) in told(effects)
    mark = Mark(epoch=EPOCH, sequence=5, confirm=True, founder=X)
    effects = bench.hear(Y, TopicAnnounce(topic="t", mark=mark, claim=CLAIM + 1))
    assert MessagesMissed(subscription="t", topic="t", count=2) in told(effects)
    bench.message(Y, "t", 6)
    assert [sequence for *_, sequence in one.received] == [6]


def test_a_node_that_was_taken_along_and_wants_it_no_more_says_so() -> None:
    bench, one = reading()
    bench.hear(X, moving(sequence=3))
    bench.mesh.unsubscribe(one)
    assert (Y, Unsubscribe(topic="t")) in sent(bench.hear(Y, moved(sequence=3)))


# -- anybody


def test_whatever_peers_say_of_hand_overs_breaks_nothing() -> None:
    chance = random.Random(7)
    peers = [A, B, X, Y]
    for _ in range(200):
        bench = owning(*peers)
        bench.subscribe("*")
        for _ in range(40):
            peer, topic = chance.choice(peers), chance.choice(["t", "u", "v"])
            one = move(chance.choice(list(MoveStep)), chance.choice([*peers, NODE]), chance.randrange(3))
            mark = Mark(
                epoch=chance.randrange(3),
                sequence=chance.randrange(5),
                confirm=chance.random() < 0.5,
                retain=chance.random() < 0.3,
                founder=chance.choice([b"", *peers]),
            )
            command = (
                TopicAnnounce(
                    topic=topic,
                    mark=chance.choice([None, mark]),
                    claim=chance.randrange(100),
                    move=chance.choice([None, one]),
                )
                if chance.random() < 0.6
                else TopicRemove(topic=topic, mark=chance.choice([None, mark]), move=one)
            )
            try:
                bench.hear(peer, command)
            except PeerError:
                continue
            if chance.random() < 0.1:
                bench.leave(peer)
                bench.join(peer)
            if chance.random() < 0.1:
                bench.tick(chance.choice([0.0, 1.0, 40.0]))
