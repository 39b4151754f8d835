"""What the demo shows follows from what its processes report."""

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from hansa.demo.board import Board, ClientRow, NodeRow, ProviderRow, Recent, RegistryRow
from hansa.demo.books import Latencies
from hansa.demo.director import settle

LISTED = {"tcp://h:1": "aa", "tcp://h:2": "bb"}


def client_report(**changes: Any) -> dict[str, Any]:
    latencies = Latencies()
    latencies.note(0.001)
    usual = {
        "pid": 7,
        "asked_count": 0,
        "answered_count": 0,
        "retried_count": 0,
        "failed": {},
        "listed": LISTED,
        "connections_count": 2,
        "registries_heard": [1, 2],
        "latencies": latencies.as_json(),
    }
    return usual | changes


def full_board() -> Board:
    """Two registries, two providers and a client who all know each other."""
    board = Board(
        registries=[RegistryRow(number=1, router="tcp://r:1"), RegistryRow(number=2, router="tcp://r:2")],
        providers=[ProviderRow(number=1), ProviderRow(number=2)],
        story=["it began"],
    )
    for registry in board.registries:
        report = {"pid": 3, "listed": LISTED, "peers_heard": [3 - registry.number]}
        registry.hear(report, now=1.0)
    for provider, (endpoint, routing_id) in zip(board.providers, LISTED.items(), strict=True):
        registered = {"registry": f"tcp://r:{provider.number}", "state": "registered"}
        report = {"pid": 5, "endpoint": endpoint, "id": routing_id, "answered_count": 0, **registered}
        provider.hear(report, now=1.0)
    board.client.hear(client_report(), now=1.0)
    return board


# -- rates


def test_the_rate_is_that_of_the_latest_reports() -> None:
    recent = Recent()
    recent.hear(0, 10.0)
    assert recent.rate == 0.0
    recent.hear(500, 10.5)
    assert recent.rate == 1000.0
    for step in range(8):
        recent.hear(500, 11.0 + step)
    assert recent.rate == 0.0


def test_two_reports_at_one_instant_give_no_rate() -> None:
    recent = Recent()
    recent.hear(1, 1.0)
    recent.hear(9, 1.0)
    assert recent.rate == 0.0


# -- who knows what


def test_everybody_knows_when_all_lists_agree() -> None:
    board = full_board()
    assert board.client_knows()
    assert board.everybody_knows()


def test_a_killed_provider_is_known_when_no_list_has_it_any_more() -> None:
    board = full_board()
    board.providers[1].is_up = False
    assert not board.client_knows()
    left = {"tcp://h:1": "aa"}
    board.client.hear(client_report(connections_count=1, listed=left), now=2.0)
    assert board.client_knows()
    assert not board.everybody_knows()
    for registry in board.registries:
        registry.listed = left
    assert board.everybody_knows()


def test_a_killed_registry_is_known_when_its_providers_have_moved_and_the_client_hears_it_no_more() -> None:
    board = full_board()
    board.registries[0].is_up = False
    assert not board.everybody_knows()
    board.providers[0].registry = "tcp://r:2"
    assert not board.everybody_knows()
    board.client.hear(client_report(registries_heard=[2]), now=2.0)
    assert board.everybody_knows()


@pytest.mark.parametrize("listed", [{}, {"tcp://h:1": "aa", "tcp://h:2": "the one before"}])
def test_a_registry_that_lists_something_else_does_not_know(listed: dict[str, str]) -> None:
    board = full_board()
    board.registries[1].listed = listed
    assert not board.everybody_knows()


def test_a_registry_that_does_not_hear_the_others_does_not_know() -> None:
    board = full_board()
    board.registries[1].peers_heard = set()
    assert not board.everybody_knows()


def test_a_provider_that_is_not_registered_yet_is_not_known() -> None:
    board = full_board()
    board.providers[0].state = "connected"
    assert not board.everybody_knows()


# -- the books


def test_open_calls_are_those_without_an_outcome() -> None:
    line = ClientRow()
    line.hear(client_report(asked_count=40, answered_count=30, failed={"timed-out": 2}), now=1.0)
    assert line.failed_count == 2
    assert line.open_count == 8


def books(board: Board) -> tuple[int, str]:
    console = Console(width=200, file=StringIO(), record=True)
    status = settle(console, board)
    return status, console.export_text()


def test_what_a_killed_client_had_open_is_not_missing() -> None:
    board = full_board()
    board.past_clients.append(replace(board.client, asked_count=1016, answered_count=1000, is_up=False))
    board.client.hear(client_report(asked_count=500, answered_count=500, retried_count=3), now=2.0)
    status, text = books(board)
    assert status == 0
    assert "asked 1,516, answered 1,500, failed 0, missing 0" in text
    assert "open when the client was killed: 16" in text


def test_a_call_without_an_outcome_is_missing() -> None:
    board = full_board()
    board.client.hear(client_report(asked_count=500, answered_count=499), now=2.0)
    status, text = books(board)
    assert status == 1
    assert "missing 1" in text


def test_a_failed_call_is_told_with_its_code() -> None:
    board = full_board()
    board.client.hear(client_report(asked_count=5, answered_count=4, failed={"provider-lost": 1}), now=2.0)
    status, text = books(board)
    assert status == 1
    assert "failed with provider-lost: 1" in text


# -- pictures


def test_who_is_where_stands_in_the_line_and_on_the_screen() -> None:
    board = full_board()
    board.registries[1].is_up = False
    board.client.hear(client_report(asked_count=1300, answered_count=1250), now=2.0)
    line = board.as_line(2.0)
    assert "registries 1/2" in line
    assert "providers 2/2 (registered with 1 2)" in line
    assert "open 50" in line
    console = Console(width=160, record=True, file=StringIO())
    console.print(board.as_screen(2.0))
    screen = console.export_text()
    assert "killed" in screen
    assert "at registry 1" in screen
    assert "1,250" in screen
    assert "it began" in screen


def test_a_process_that_has_not_spoken_yet_is_starting() -> None:
    board = Board(registries=[RegistryRow(number=1, router="tcp://r:1")], providers=[ProviderRow(number=1)])
    console = Console(width=160, record=True, file=StringIO())
    console.print(board.as_screen(0.1))
    assert console.export_text().count("starting") == 3
    assert not board.everybody_knows()


# -- the mesh


def node_report(number: int, **changes: Any) -> dict[str, Any]:
    """A node of two that are connected, own a topic each, and have published nothing."""
    usual = {
        "pid": 9,
        "id": f"id{number}",
        "peers": [f"id{3 - number}"],
        "active": ["zone:1", "zone:2"],
        "handover_s": None,
        "is_quiet": False,
        "published": {},
        "readers": {},
        "latencies": {},
    }
    return usual | changes


def mesh_board() -> Board:
    board = Board(nodes=[NodeRow(number=number, owned=[f"zone:{number}"]) for number in (1, 2)])
    for node in board.nodes:
        node.hear(node_report(node.number), now=1.0)
    return board


def test_the_mesh_knows_when_all_are_connected_and_read_what_there_is() -> None:
    board = mesh_board()
    assert board.mesh_knows()
    board.nodes[0].hear(node_report(1, active=["zone:1"]), now=2.0)
    assert not board.mesh_knows()
    board.nodes[0].hear(node_report(1, peers=[]), now=2.0)
    assert not board.mesh_knows()


def test_a_killed_node_is_known_when_its_topics_are_pending() -> None:
    board = mesh_board()
    board.nodes[0].is_up = False
    assert not board.mesh_knows()
    board.nodes[1].hear(node_report(2, peers=[], active=["zone:2"]), now=2.0)
    assert board.mesh_knows()
    board.nodes[0] = NodeRow(number=1, life=2, owned=["zone:1"])
    assert not board.mesh_knows()


def test_the_hand_over_is_the_longest_that_anybody_measured() -> None:
    board = mesh_board()
    assert board.handover_s is None
    board.nodes[0].hear(node_report(1, handover_s=0.5), now=2.0)
    board.nodes[1].hear(node_report(2, handover_s=1.25), now=2.0)
    assert board.handover_s == 1.25


def reader_report(**changes: Any) -> dict[str, Any]:
    usual = {
        "wants": ["zone:*"],
        "streams": {},
        "received_count": 0,
        "unordered_count": 0,
        "missed_count": 0,
        "dropped_count": 0,
    }
    return usual | changes


def test_the_mesh_is_settled_when_all_are_quiet_and_nothing_is_missing() -> None:
    board = mesh_board()
    published = {"zone:1 1.1": 5}
    readers = {"reader": reader_report(streams={"zone:1 1.1": [1, 5, 4]}, received_count=4, missed_count=1)}
    for node, sent in zip(board.nodes, (published, {}), strict=True):
        node.hear(node_report(node.number, published=sent, readers=readers), now=2.0)
    assert not board.mesh_is_settled()
    for node, sent in zip(board.nodes, (published, {}), strict=True):
        node.hear(node_report(node.number, published=sent, readers=readers, is_quiet=True), now=3.0)
    assert board.mesh_is_settled()
    board.nodes[0].published["zone:1 1.1"] = 6
    assert not board.mesh_is_settled()


def test_messages_that_are_missing_or_came_twice_fail_the_demo() -> None:
    board = mesh_board()
    streams = {"zone:1 1.1": [1, 5, 5]}
    readers = {"reader": reader_report(streams=streams, received_count=5)}
    for node, sent in zip(board.nodes, ({"zone:1 1.1": 5}, {}), strict=True):
        node.hear(node_report(node.number, published=sent, readers=readers, is_quiet=True), now=2.0)
    status, text = books(board)
    assert status == 0
    equation = "due to readers 10 = delivered 10 + dropped 0 + missed 0 + cut off by the kill 0; missing 0"
    assert f"published 5, {equation}" in text
    board.nodes[0].published["zone:1 1.1"] = 6
    status, text = books(board)
    assert status == 1
    assert "missing 2" in text
    board.nodes[0].published["zone:1 1.1"] = 5
    twice = {"reader": reader_report(streams=streams, received_count=6, unordered_count=1)}
    board.nodes[1].hear(node_report(2, readers=twice, is_quiet=True), now=3.0)
    status, text = books(board)
    assert status == 1
    assert "twice or out of order: 1" in text


def test_nodes_stand_in_the_line_and_on_the_screen() -> None:
    board = mesh_board()
    readers = {"reader": reader_report(received_count=1_000, dropped_count=7, missed_count=4)}
    board.nodes[0].hear(node_report(1, readers=readers, handover_s=1.5), now=2.0)
    board.nodes[1].is_up = False
    assert "nodes 1/2  1,000 messages/s" in board.as_line(2.0)
    console = Console(width=100, record=True, file=StringIO())
    console.print(board.as_screen(2.0))
    screen = console.export_text()
    row = next(line for line in screen.splitlines() if "node 1" in line)
    assert "1 node, 2 topics" in row
    assert row.split()[-2:] == ["1,000", "11"]
    assert "hand-over of topics 1.50 s" in screen
    assert "killed" in next(line for line in screen.splitlines() if "node 2" in line)


def test_a_small_terminal_shows_the_end_of_the_story() -> None:
    board = Board(story=[f"line {number}" for number in range(20)])
    console = Console(width=100, record=True, file=StringIO())
    console.print(board.as_screen(1.0, story_lines_max=3))
    shown = [line for line in console.export_text().splitlines() if line.startswith("line")]
    assert [line.strip() for line in shown] == ["line 17", "line 18", "line 19"]
