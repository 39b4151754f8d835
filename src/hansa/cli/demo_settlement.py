"""The last lines of the demo: what became of every call and of every message."""

from __future__ import annotations

from rich.console import Console

from hansa.cli.demo_board import Board


def settle(console: Console, board: Board) -> int:
    """Print the books; 1 when a call failed or has no outcome, or a message is not accounted for."""
    failed_count, missing_count = sum(board.failed.values()), board.client.open_count
    console.print(
        f"asked {board.asked_count:,}, answered {board.answered_count:,}, failed {failed_count:,}, "
        f"missing {missing_count:,}  (open when the client was killed: {board.open_when_killed_count:,}; "
        f"asked again because a provider was lost: {board.retried_count:,})",
        style="bold",
        soft_wrap=True,
    )
    for code, count in sorted(board.failed.items()):
        console.print(f"failed with {code}: {count:,}", style="bold red", soft_wrap=True)
    is_balanced = settle_mesh(console, board)
    return 1 if failed_count or missing_count or not is_balanced else 0


def settle_mesh(console: Console, board: Board) -> bool:
    """Print the books of the topics; whether every message is accounted for."""
    books = board.mesh_books()
    console.print(
        f"published {books.published_count:,}, due to readers {books.due_count:,} = delivered "
        f"{books.delivered_count:,} + dropped {books.dropped_count:,} + missed {books.missed_count:,} + cut "
        f"off by the kill {books.cut_off_count:,}; missing {books.missing_count:,}",
        style="bold",
        soft_wrap=True,
    )
    if books.unordered_count:
        console.print(f"twice or out of order: {books.unordered_count:,}", style="bold red", soft_wrap=True)
    return books.is_balanced
