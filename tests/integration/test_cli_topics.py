"""`hansa topics`, `hansa publish` and `hansa subscribe` as a user runs them: real processes, real signals."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hansa import sync
from hansa.coordination.claim import TakenClaim
from hansa.errors import Fenced
from hansa.ids import format_id
from hansa.keys import Keys
from hansa.store import Store, open_store
from hansa.topics.claims import TopicClaims
from hansa.topics.names import SERVICE
from hansa.transport import Environment
from tests.support.certificates import Authority
from tests.support.commands import ANY, NOBODY, RUN_S_MAX, Command, run, run_here, start_registry
from tests.support.store_process import StoreProcess

Where = dict[str, str]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def where(stack: ExitStack) -> Where:
    """The environment in which commands find a registry that runs."""
    return start_registry(stack)[1]


def subscribe(stack: ExitStack, where: Where, *arguments: str) -> Command:
    """A subscriber that is in the mesh, and waits for an owner."""
    subscriber = stack.enter_context(Command("subscribe", *arguments, "--json", env=where))
    subscriber.news("pending")
    return subscriber


def own(stack: ExitStack, where: Where, topic: str, *options: str) -> Command:
    """An owner of the topic, which has published one message and publishes what it is given as lines."""
    owner = stack.enter_context(
        Command("publish", topic, "first", "--create", "--wait", "0", "--hold", "--json", *options, env=where)
    )
    assert json.loads(owner.line())["published_count"] == 1
    return owner


def message(command: Command) -> tuple[str, str]:
    got: dict[str, Any] = json.loads(command.line())
    return got["topic"], got["payload"]


# ---- from a publisher to a subscriber -----------------------------------------------------------


@pytest.mark.spec("SPT-05")
@pytest.mark.spec("SPT-07")
def test_a_line_is_a_topic_a_tab_and_a_payload(stack: ExitStack, where: Where) -> None:
    subscriber = stack.enter_context(Command("subscribe", "chat:*", "news", "--count", "5", env=where))
    assert subscriber.process.stderr is not None
    assert subscriber.process.stderr.readline() == "chat:*: pending, no topic matches yet\n"
    assert subscriber.process.stderr.readline() == "news: pending, nobody owns it yet\n"
    assert run("publish", "chat:room1", "hello", "--create", env=where) == (0, "", "")
    status, out, err = run("publish", "news", "--create", "--lines", given=b"one\n\nlast", env=where)
    assert (status, out) == (0, "")
    assert err.splitlines()[1:] == ["3 published to news, 1 node subscribed"]
    assert run("publish", "chat:room2", "-", "--create", given=b"two\nlines\n", env=where)[0] == 0
    status, out, err = subscriber.end()
    assert status == 0
    assert out == "chat:room1\thello\nnews\tone\nnews\t\nnews\tlast\nchat:room2\ttwo\\nlines\n"
    assert "chat:room1 (chat:*): active, owned by 01:" in err
    assert err.endswith("5 messages, 0 missed, 0 dropped\n")


@pytest.mark.spec("SPT-05")
def test_a_message_goes_through_the_owner_of_its_topic(stack: ExitStack, where: Where) -> None:
    subscriber = subscribe(stack, where, "state")
    owner = own(stack, where, "state")
    subscriber.news("active")
    assert run("publish", "state", "routed", "--count", "3", "--json", env=where)[0] == 0
    assert [message(subscriber) for _ in range(3)] == [("state", "routed")] * 3
    status, _, err = owner.stop()
    assert status == 0, err
    assert subscriber.news("pending")["topic"] == "state"
    assert subscriber.stop()[0] == 0


def test_bytes_that_are_no_text_arrive_as_they_are(stack: ExitStack, where: Where, tmp_path: Path) -> None:
    subscriber = subscribe(stack, where, "raw", "--count", "2")
    (tmp_path / "payload").write_bytes(b"\x00\xff")
    assert run("publish", "raw", f"@{tmp_path}/payload", "--create", "--count", "5", env=where)[0] == 0
    status, out, _ = subscriber.end()
    assert status == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"topic": "raw", "encoding": "base64", "payload": "AP8=", "sequence": number} for number in (1, 2)
    ]


def test_who_subscribes_late_gets_the_retained_message(stack: ExitStack, where: Where) -> None:
    own(stack, where, "config", "--retain")
    assert run("subscribe", "config", "--count", "1", env=where)[:2] == (0, "config\tfirst\n")


def test_everybody_who_was_there_before_the_topic_gets_its_first_message(
    stack: ExitStack, where: Where
) -> None:
    subscribers = [subscribe(stack, where, text, "--count", "1") for text in ("chat:room1", "chat:*", "*")]
    assert run("publish", "chat:room1", "hello", "--create", env=where) == (0, "", "")
    assert [message(subscriber) for subscriber in subscribers] == [("chat:room1", "hello")] * 3


def test_publishing_waits_for_as_many_subscribers_as_were_asked_for(stack: ExitStack, where: Where) -> None:
    publisher = stack.enter_context(
        Command("publish", "chat", "hello", "--create", "--wait", "2", "--timeout", "60", env=where)
    )
    # One by one: the second one finds a topic that exists.
    subscribers = [
        stack.enter_context(Command("subscribe", "chat", "--count", "1", env=where)) for _ in range(2)
    ]
    for subscriber in subscribers:
        assert subscriber.end()[:2] == (0, "chat\thello\n")
    assert publisher.end()[0] == 0


# ---- what goes wrong ----------------------------------------------------------------------------


@pytest.mark.spec("SPT-02")
@pytest.mark.spec("SPT-05")
def test_without_an_owner_and_with_two_it_says_what_to_do(stack: ExitStack, where: Where) -> None:
    status, out, err = run("publish", "state", "x", "--json", env=where)
    assert status == 1
    assert json.loads(out)["error"] == "no-owner"
    assert "give --create" in err
    own(stack, where, "state")
    status, out, err = run("publish", "state", "x", "--create", "--json", env=where)
    assert status == 1
    assert json.loads(out)["error"] == "topic-exists"
    assert "Leave out --create" in err


@pytest.mark.spec("SPT-12")
def test_a_topic_claimed_in_a_store_has_one_owner_among_nodes_that_do_not_hear_each_other(
    stack: ExitStack, where: Where
) -> None:
    _, elsewhere = start_registry(stack)
    store = stack.enter_context(StoreProcess(None))
    owner = own(stack, where, "state", "--store", f"etcd://{store.address}")
    create = (
        "publish",
        "state",
        "x",
        "--create",
        "--wait",
        "0",
        "--json",
        "--store",
        f"etcd://{store.address}",
    )
    status, out, err = run(*create, env=elsewhere)
    assert status == 1
    assert json.loads(out)["error"] == "topic-exists"
    assert "as the store has it" in err
    assert run(*create, "--cluster", "other", env=elsewhere)[0] == 0
    assert owner.stop()[0] == 0
    assert run(*create, env=elsewhere)[0] == 0


@pytest.mark.spec("SPT-12")
@pytest.mark.spec("OWN-03")
def test_who_is_ended_hands_its_topics_over_and_their_publishers_and_readers_go_on(
    stack: ExitStack, where: Where
) -> None:
    store = stack.enter_context(StoreProcess(None))
    url = f"etcd://{store.address}"
    subscriber = subscribe(stack, where, "state")
    heir = own(stack, where, "other", "--store", url)
    leaving = own(stack, where, "state", "--retain", "--store", url)
    assert message(subscriber) == ("state", "first")
    status, _, err = leaving.stop()
    assert (status, "state is handed over to 01:" in err) == (0, True)
    assert run("publish", "state", "second", env=where)[0] == 0
    assert message(subscriber) == ("state", "second")
    # The latest message has gone along, and nobody is left to take anything.
    assert (
        json.loads(run("subscribe", "state", "--count", "1", "--json", env=where)[1])["payload"] == "second"
    )
    status, _, err = heir.stop()
    assert (status, "handed over" in err) == (0, False)


def test_who_holds_a_topic_fails_when_its_claim_is_lost(stack: ExitStack, where: Where) -> None:
    store = stack.enter_context(StoreProcess(None))
    owner = own(stack, where, "state", "--store", f"etcd://{store.address}")
    with sync.open_store(f"etcd://{store.address}") as opened:
        assert opened.delete_prefix(Keys("default").topic(SERVICE, "state")) == 1
    status, out, err = owner.end()
    assert status == 1
    assert json.loads(out)["error"] == "fenced"
    assert "'state' is lost: " in err


def test_a_topic_that_nobody_wants_is_not_published_in_vain(where: Where) -> None:
    status, out, err = run("publish", "state", "x", "--create", "--timeout", "2", env=where)
    assert (status, out) == (1, "")
    assert "0 of 1 nodes subscribed to 'state'" in err
    assert run("publish", "state", "x", "--create", "--wait", "0", env=where)[0] == 0


@pytest.mark.spec("SPT-15")
def test_two_meshes_on_one_registry_do_not_see_each_other(stack: ExitStack, where: Where) -> None:
    own(stack, where, "state", "--service", "spot-node.blue")
    assert run("publish", "state", "x", env=where)[0] == 1
    assert run("publish", "state", "x", "--service", "spot-node.blue", env=where)[0] == 0
    assert json.loads(run("topics", "--json", "--interval", "0.1", env=where)[1]) == {
        "nodes": [],
        "takers": [],
        "topics": [],
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["publish", "chat:*", "x"], "whole name"),
        (["publish", "chat", "x", "--retain"], "give --create"),
        (["publish", "chat", "x", "--store", "etcd://127.0.0.1:1"], "give --create"),
        (["publish", "chat", "x", "--create", "--store", "memory://"], "nobody else is there"),
        (["publish", "chat", "x", "--create", "--mesh", "pubsub"], "have none"),
        (["topics", "--mesh", "pubsub"], "have no owners"),
        (["publish", "chat", "x", "--lines"], "leave out the payload"),
        (["publish", "chat", "@no such file"], "No such file"),
        (["publish", "chat", "x", "--count", "0"], "Must be >= 1"),
        (["publish"], "requires an argument"),
        (["subscribe"], "requires an argument"),
        (["subscribe", "a*b"], "write 'a*'"),
        (["subscribe", "a", "--service", "greeter"], "spot-node"),
        (["subscribe", "a", "--bind", "tcp://127.0.0.1"], "add a port"),
        (["topics", "--tls-cert", "cert.pem"], "--tls-ca together"),
    ],
)
def test_what_cannot_work_is_said_in_a_sentence(arguments: list[str], said: str) -> None:
    status, out, err = run_here(*arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [["publish", "a", "x"], ["subscribe", "a"], ["topics"]])
def test_without_a_registry_it_says_what_was_tried(arguments: list[str], where: Where) -> None:
    status, out, err = run(*arguments, "--router", NOBODY, "--pub", NOBODY, "--timeout", "0.5", "--json")
    assert status == 1
    assert json.loads(out)["error"] == "timed-out"
    assert f"tried {NOBODY}" in err.splitlines()[-1]
    # The ROUTER is right, the PUB is not: nobody would ever be found.
    status, _, err = run(
        *arguments, "--pub", NOBODY, "--timeout", "2", env={"HANSA_ROUTER": where["HANSA_ROUTER"]}
    )
    assert status == 1
    assert "PUB endpoint" in err


@pytest.mark.spec("SPT-20")
def test_commands_meet_in_a_mesh_without_owners(stack: ExitStack, where: Where) -> None:
    subscriber = stack.enter_context(
        Command("subscribe", "chat:*", "--count", "2", "--mesh", "pubsub", "--json", env=where)
    )
    for text in ("hello", "again"):
        status, _, err = run("publish", "chat:room1", text, "--mesh", "pubsub", "--timeout", "30", env=where)
        assert (status, err) == (0, "")
        assert message(subscriber) == ("chat:room1", text)
    assert subscriber.end()[0] == 0


def test_an_owner_that_stays_tells_the_number_to_kill_it_by(stack: ExitStack, where: Where) -> None:
    owner = own(stack, where, "state")
    assert owner.process.stderr is not None
    assert owner.process.stderr.readline() == f"owner of state, pid {owner.process.pid}\n"


# ---- owners that come and go --------------------------------------------------------------------


@pytest.mark.spec("SPT-13")
def test_a_subscriber_outlives_an_owner_that_is_killed_and_comes_back(stack: ExitStack, where: Where) -> None:
    subscriber = subscribe(stack, where, "state")
    owner = own(stack, where, "state", "--retain")
    first = subscriber.news("active")
    assert message(subscriber) == ("state", "first")
    owner.process.kill()
    assert subscriber.news("pending")["owner"] == first["owner"]
    assert run("publish", "state", "x", env=where)[0] == 1
    own(stack, where, "state", "--retain")
    assert subscriber.news("active")["owner"] != first["owner"]
    assert message(subscriber) == ("state", "first")
    assert run("publish", "state", "second", env=where)[0] == 0
    assert message(subscriber) == ("state", "second")
    status, _, err = subscriber.stop()
    assert status == 0
    ended = json.loads(err.splitlines()[-1])
    assert (ended["messages_count"], ended["missed_count"], ended["dropped_count"]) == (3, 0, 0)


def publish_lines(stack: ExitStack, where: Where, subscriber: Command) -> Command:
    """A publisher of lines whose first one has arrived, through an owner elsewhere."""
    publisher = stack.enter_context(
        Command("publish", "state", "--lines", "--timeout", "3", "--json", env=where)
    )
    publisher.write("one")
    assert message(subscriber) == ("state", "one")
    return publisher


def test_a_publisher_says_when_the_owner_is_gone(stack: ExitStack, where: Where) -> None:
    subscriber = subscribe(stack, where, "state")
    owner = own(stack, where, "state")
    subscriber.news("active")
    publisher = publish_lines(stack, where, subscriber)
    owner.stop()
    subscriber.news("pending")
    publisher.write("two")
    status, out, err = publisher.end()
    assert status == 1
    # Either it knew, or the owner refused what came late: nothing is lost unseen.
    told = json.loads(out)
    assert told.get("error") == "no-owner" or told["refused_count"] == 1 or told["in_doubt_count"] == 1
    assert "after 1 published" in err or "refused" in err or "lost" in err


def test_a_publisher_says_when_the_owner_does_not_answer(stack: ExitStack, where: Where) -> None:
    subscriber = subscribe(stack, where, "state")
    owner = own(stack, where, "state")
    subscriber.news("active")
    publisher = publish_lines(stack, where, subscriber)
    owner.process.send_signal(signal.SIGSTOP)
    publisher.write("two")
    status, out, err = publisher.end()
    assert status == 1
    assert json.loads(out)["error"] == "timed-out"
    assert "did not answer within 3 s: some of the 2 messages may not have reached it" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_commands_in_order(stack: ExitStack, number: int) -> None:
    registry, where = start_registry(stack)
    subscriber = subscribe(stack, where, "log")
    publisher = stack.enter_context(Command("publish", "log", "--create", "--lines", env=where))
    publisher.write("one")
    assert message(subscriber) == ("log", "one")
    # Its stdin is open, and there would be more.
    assert publisher.stop(number)[0] == 130
    assert subscriber.news("pending")["topic"] == "log"
    status, out, err = subscriber.stop(number)
    assert (status, out) == (0, "")
    assert json.loads(err.splitlines()[-1])["event"] == "ended"
    # Both said goodbye: nobody has to wait until their heartbeats are overdue.
    for _ in range(2):
        registry.event("provider-removed")


def test_a_subscriber_ends_when_its_reader_has_left(stack: ExitStack, where: Where) -> None:
    subscriber = subscribe(stack, where, "log")
    publisher = stack.enter_context(Command("publish", "log", "--create", "--lines", env=where))
    publisher.write("one")
    assert message(subscriber) == ("log", "one")
    assert subscriber.process.stdout is not None
    subscriber.process.stdout.close()
    publisher.write("two")
    assert subscriber.process.wait(RUN_S_MAX) == 0


# ---- readers that are slow ----------------------------------------------------------------------


@pytest.mark.spec("SPT-21")
@pytest.mark.spec("SPT-22")
def test_a_reader_that_stalls_is_told_exactly_how_much_it_did_not_get(stack: ExitStack, where: Where) -> None:
    lines_count = 30_000
    subscriber = subscribe(stack, where, "log")
    publisher = stack.enter_context(Command("publish", "log", "--create", "--lines", env=where))
    subscriber_is_there = "go"
    publisher.write(subscriber_is_there)
    assert message(subscriber) == ("log", subscriber_is_there)
    # Nobody reads the subscriber's lines from here on; a pipe holds 64 KiB.
    publisher.write(*(f"{number:06} {'x' * 100}" for number in range(lines_count)))
    watching = stack.enter_context(Command("topics", "--watch", "--json", "--interval", "0.1", env=where))
    while watching.event("topic")["published_count"] < 1 + lines_count:
        continue
    publisher.write("end")
    payloads = [subscriber_is_there]
    while payloads[-1] != "end":
        payloads.append(message(subscriber)[1])
    assert payloads[1:-1] == sorted(set(payloads[1:-1]))
    status, _, err = subscriber.stop()
    assert status == 0
    ended = json.loads(err.splitlines()[-1])
    assert ended["messages_count"] == len(payloads)
    assert ended["dropped_count"] > 0
    assert ended["messages_count"] + ended["missed_count"] + ended["dropped_count"] == lines_count + 2


# ---- hansa topics -------------------------------------------------------------------------------


def test_topics_are_shown_as_a_table_and_as_json(stack: ExitStack, where: Where) -> None:
    assert run("topics", "--interval", "0.1", env=where)[1] == "0 topics at 0 nodes\n"
    subscriber = subscribe(stack, where, "chat:*")
    own(stack, where, "chat:room1")
    own(stack, where, "news")
    owner = subscriber.news("active")["owner"]
    status, out, err = run("topics", "--json", "--interval", "0.1", env=where)
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert len(found["nodes"]) == 3
    room, news = found["topics"]
    assert (room["topic"], room["owner"], room["subscribers_count"]) == ("chat:room1", owner, 1)
    assert (news["topic"], news["subscribers_count"], news["published_count"]) == ("news", 0, 1)
    assert (news["dropped_count"], news["messages_per_s"]) == (0, 0.0)
    out = run("topics", "--interval", "0.1", env={**where, "COLUMNS": "120"})[1]
    (row,) = [line for line in out.splitlines() if "chat:room1" in line]
    assert owner in row
    assert out.endswith("2 topics at 3 nodes, 0 messages/s\n")


def test_watching_topics_tells_rates_and_removals(stack: ExitStack, where: Where) -> None:
    watching = stack.enter_context(Command("topics", "--watch", "--json", "--interval", "0.1", env=where))
    assert watching.event("ready")["nodes_count"] == 0
    publisher = stack.enter_context(
        Command("publish", "log", "--create", "--wait", "0", "--lines", env=where)
    )
    assert watching.event("topic")["topic"] == "log"
    publisher.write(*map(str, range(500)))
    while (seen := watching.event("topic"))["published_count"] < 500:
        continue
    assert seen["messages_per_s"] > 0
    assert publisher.stop()[0] == 130
    assert watching.event("topic-removed")["topic"] == "log"
    assert watching.stop(signal.SIGINT)[0] == 0


def test_watching_topics_ends_when_its_reader_has_left(stack: ExitStack, where: Where) -> None:
    watching = stack.enter_context(Command("topics", "--watch", "--interval", "0.1", env=where))
    assert watching.line() == "watching: 0 topics at 0 nodes"
    assert watching.process.stdout is not None
    watching.process.stdout.close()
    own(stack, where, "state")
    assert watching.process.wait(RUN_S_MAX) == 0


# ---- hansa topics move --------------------------------------------------------------------------


def owner_of(where: Where, topic: str) -> str:
    return {one["topic"]: str(one["owner"]) for one in shown_topics(where)["topics"]}[topic]


def shown_topics(where: Where) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(run("topics", "--json", "--interval", "0.1", env=where)[1])
    return shown


@pytest.fixture
def stored(stack: ExitStack, where: Where) -> Where:
    """The same with a store."""
    store = stack.enter_context(StoreProcess(None))
    return {**where, "HANSA_STORE": f"etcd://{store.address}"}


def own_in(stack: ExitStack, stored: Where, topic: str, *options: str) -> tuple[Command, str]:
    """An owner with a store, and its id."""
    owner = own(stack, stored, topic, "--store", stored["HANSA_STORE"], *options)
    return owner, owner_of(stored, topic)


@pytest.mark.spec("SPT-12")
@pytest.mark.spec("OWN-03")
def test_a_topic_is_moved_while_it_is_published_and_its_reader_misses_nothing(
    stack: ExitStack, stored: Where
) -> None:
    subscriber = subscribe(stack, stored, "state")
    _, source = own_in(stack, stored, "state", "--retain")
    _, target = own_in(stack, stored, "other")
    assert message(subscriber) == ("state", "first")
    # What is to be typed is shown.
    assert {one["node"] for one in shown_topics(stored)["takers"]} == {source, target}
    table = run("topics", "--interval", "0.1", env={**stored, "COLUMNS": "120"})[1]
    assert "takes topics" in table
    assert table.count(target) == 2
    publisher = stack.enter_context(Command("publish", "state", "--lines", env=stored))
    count = 0
    with ThreadPoolExecutor() as pool:
        order = ("topics", "move", "state", target, "--reason", "a new kernel", "--json")
        moving = pool.submit(run, *order, env=stored)
        is_last = False
        while not is_last:
            is_last = moving.done()
            numbers = [str(number) for number in range(count, count + 100)]
            publisher.write(*numbers)
            assert [message(subscriber)[1] for _ in numbers] == numbers
            count += len(numbers)
    status, out, err = moving.result()
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert (told["topic"], told["step"], told["reason"]) == ("state", "done", "a new kernel")
    assert (told["source"], told["target"], told["taken_by"]) == (source, target, target)
    assert told["next_epoch"] > told["epoch"] > 0
    assert 0 < told["pause_s"] < told["took_s"]
    assert owner_of(stored, "state") == target
    status, _, err = subscriber.stop()
    ended = json.loads(err.splitlines()[-1])
    assert (ended["messages_count"], ended["missed_count"], ended["dropped_count"]) == (count + 1, 0, 0)
    # And back, in a sentence.
    status, out, err = run("topics", "move", "state", source, env=stored)
    assert (status, err) == (0, "")
    assert out.startswith(f"topic spot-node/state: handed over from {target} to {source} in ")
    assert "; nobody owned it for 0." in out
    assert owner_of(stored, "state") == source


def test_a_node_is_named_as_the_store_knows_it_or_by_its_id(stack: ExitStack, stored: Where) -> None:
    _, source = own_in(stack, stored, "state")
    with (
        sync.open_store(stored["HANSA_STORE"]) as store,
        sync.SessionKeeper(store, node="host-2") as keeper,
        sync.Discovery([stored["HANSA_PUB"]]) as discovery,
        sync.SpotNode(ANY, [stored["HANSA_ROUTER"]], discovery=discovery, session=keeper) as node,
    ):
        node.registered(RUN_S_MAX)
        target = format_id(node.routing_id)
        assert {"node": target, "name": "host-2"} in shown_topics(stored)["takers"]
        status, out, err = run("topics", "move", "state", "host-2", env=stored)
        assert (status, err) == (0, "")
        assert f"from {source} to host-2" in out
        assert node.owned == ("state",)
        assert run("topics", "move", "state", source, env=stored)[0] == 0
        assert run("topics", "move", "state", target, env=stored)[0] == 0
        assert node.owned == ("state",)


def test_what_topics_cannot_be_moved_is_told_in_a_sentence(stack: ExitStack, stored: Where) -> None:
    def refused(*arguments: str) -> str:
        status, out, err = run("topics", "move", *arguments, env=stored)
        assert (status, out) == (1, "")
        return err

    reader = subscribe(stack, stored, "plain")
    own(stack, stored, "plain")
    plain = reader.news("active")["owner"]
    stays = "hansa topics move: topic 'plain' stays where it is: "
    nobody = (
        "; no node of this mesh does, because none has a store (`hansa publish --hold --store ADDRESS`)\n"
    )
    assert refused("plain", "host-2") == f"{stays}no node 'host-2' that takes topics is connected{nobody}"
    _, source = own_in(stack, stored, "state")
    assert refused("plain", plain) == f"{stays}node {plain!r} takes no topics; these take topics: {source}\n"
    assert f"stays at node {plain}, which has not claimed it in this store" in refused("plain", source)
    assert "nobody owns topic 'stat' now. Did you mean state?" in refused("stat", source)
    assert f"node {source!r} owns it already" in refused("state", source)
    _, target = own_in(stack, stored, "other")
    assert "which has not claimed it in this store, cluster 'blue'" in refused(
        "state", target, "--cluster", "blue"
    )
    status, out, _ = run("topics", "move", "state", "nowhere", "--json", env=stored)
    assert (status, json.loads(out)["error"]) == (1, "no-successor")
    # Nothing was asked of anybody.
    assert run("handovers", env=stored)[1] == "cluster default: no hand-overs\n"


async def test_a_topic_whose_owner_does_not_answer_stays_there(stack: ExitStack, stored: Where) -> None:
    _, target = own_in(stack, stored, "other")
    watcher = stack.enter_context(Command("handovers", "--watch", "--json", env=stored))
    watcher.event("ready")
    move = ("topics", "move", "state", target)
    async with open_store(stored["HANSA_STORE"]) as store, owned_in_silence(store, "state") as claim:
        status, out, err = await asyncio.to_thread(run, *move, "--within", "0.5", env=stored)
        assert (status, out) == (1, "")
        assert err.startswith("hansa topics move: topic spot-node/state: withdrawn after ")
        assert err.endswith(", when it was prepared: the old owner did not give it within 0.5 s\n")
        asking = stack.enter_context(Command(*move, env=stored))
        while (await asyncio.to_thread(watcher.event, "step"))["number"] < 2:
            continue
        assert (await asyncio.to_thread(asking.stop))[:2] == (130, "")
        while (step := await asyncio.to_thread(watcher.event, "step"))["step"] != "withdrawn":
            continue
        assert step["trouble"].endswith(" took it back")
        assert claim.is_standing


@asynccontextmanager
async def owned_in_silence(store: Store, topic: str) -> AsyncIterator[TakenClaim[Fenced]]:
    """A topic is claimed, and nobody looks at what is asked of its owner."""

    def fail(*wrong: object) -> None:
        raise AssertionError(wrong)

    claims = TopicClaims(
        store,
        cluster="default",
        service=SERVICE,
        node=b"silent",
        ttl_s=60.0,
        keeper=None,
        environment=Environment(),
        on_lost=fail,
        on_failure=fail,
    )
    claim = await claims.claim(topic)
    claims.keep(topic, claim)
    try:
        yield claim
    finally:
        await claims.close()


def test_what_of_a_move_cannot_work_is_refused_before_anybody_is_asked() -> None:
    for arguments in (
        ["state"],
        ["*", "host-2"],
        ["state", "a/b"],
        ["state", "host-2", "--within", "0"],
        ["state", "host-2", "--reason", "x" * 501],
        ["state", "host-2", "--mesh", "pubsub"],
        ["state", "host-2", "--store", "memory://"],
        ["state", "host-2", "--service", "blue"],
    ):
        status, out, err = run_here("topics", "move", *arguments)
        assert (status, out) == (2, ""), err
        assert err.startswith("hansa topics move: ")


# ---- over TLS -----------------------------------------------------------------------------------


def test_topics_cross_tls_and_strangers_stay_out(stack: ExitStack, tmp_path: Path) -> None:
    def environment(authority: Authority, name: str) -> Where:
        tls = authority.issue(name)
        return {"HANSA_TLS_CERT": tls.cert, "HANSA_TLS_KEY": tls.key, "HANSA_TLS_CA": tls.ca}

    ours, theirs = Authority.create(tmp_path / "ours"), Authority.create(tmp_path / "theirs")
    any_port = ANY.replace("tcp", "tls")
    registry = stack.enter_context(
        Command(
            *("registry", "--pub", any_port, "--router", any_port, "--json"),
            env=environment(ours, "registry"),
        )
    )
    ready = registry.event("ready")
    where = {"HANSA_PUB": ready["pub"], "HANSA_ROUTER": ready["router"]}
    subscriber = subscribe(stack, {**where, **environment(ours, "reader")}, "chat", "--bind", any_port)
    assert run(
        *("publish", "chat", "hello", "--create", "--bind", any_port),
        env={**where, **environment(ours, "writer")},
    ) == (0, "", "")
    assert message(subscriber) == ("chat", "hello")
    status, _, err = run(
        *("publish", "chat", "hello", "--create", "--bind", any_port, "--timeout", "1"),
        env={**where, **environment(theirs, "stranger")},
    )
    assert status == 1
    assert "Traceback" not in err
