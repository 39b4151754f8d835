"""What an asynchronous docstring says to threads."""

import pytest

from mirrors import docstrings


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Use it with `async with`.", "Use it with `with`."),
        ("`async with lock as hold:` waits.", "`with lock as hold:` waits."),
        ("An async iterator over ships.", "A blocking iterator over ships."),
        ("Waits. Cancelling it leaves the line.", "Waits. Interrupting it leaves the line."),
        ("Cancelled or timed out, it stays.", "Interrupted or timed out, it stays."),
        ("After an error or a cancellation it is gone.", "After an error or an interrupt it is gone."),
        ("How late this process's event loop is.", "How late hansa's thread is."),
        ("False, also in a loop that is stuck.", "False, also while hansa's thread is stuck."),
        ("One a task.", "One a thread."),
        ("etcd tells it. zenoh does not.", "etcd tells it. zenoh does not."),
        ("True. Any thread may ask.", "True. Asks nobody, and never waits."),
        (
            "Sails. It belongs to the event loop that it was entered in, and is used once.",
            "Sails. It is used once.",
        ),
        (
            "Sails. It belongs to one event loop, but `is_live` is true in any thread. Ends.",
            "Sails. `is_live` is true in any thread. Ends.",
        ),
        (
            "Sails. In it, it belongs to the event loop, and raises UsageError elsewhere; threads use "
            "`hansa.sync.Cog`. Ends.",
            "Sails. Ends.",
        ),
        ("Sails.\n\nIt belongs to the event loop in which it was entered.", "Sails."),
    ],
)
def test_it_speaks_of_threads(said: str, told: str) -> None:
    assert docstrings.for_threads(said) == told
    assert docstrings.foreign_words(told) == []


@pytest.mark.parametrize(
    "said",
    ["It cancels its body.", "Write `await cog.sail()`.", "Handlers are `async def`.", "In an event loop."],
)
def test_what_no_rule_is_for_is_found(said: str) -> None:
    assert docstrings.foreign_words(docstrings.for_threads(said)) != []


def test_an_argument_about_cancelling_is_no_foreign_word() -> None:
    assert docstrings.foreign_words("At most `cancel_s_max` seconds.") == []


def test_a_docstring_fits_into_its_lines() -> None:
    summary, more = "Sails with " + "salt and " * 8 + "wool.", "Never sinks. " * 12
    quoted = docstrings.quoted(f"{summary} {more}\n\n{more}", 8)
    lines = quoted.splitlines()
    assert lines[0].startswith(f'        """{summary}')
    assert lines[1] == ""
    assert lines[-1] == '        """'
    assert max(map(len, lines)) <= docstrings.WIDTH
    assert " ".join(quoted.replace('"""', "").split()) == f"{summary} {more.strip()} {more.strip()}"


@pytest.mark.parametrize("count", range(95, 110))
def test_quotes_stand_in_the_line_while_there_is_room(count: int) -> None:
    quoted = docstrings.quoted("x" * count + ".", 4)
    assert max(map(len, quoted.splitlines())) <= docstrings.WIDTH or count > docstrings.WIDTH - 8
    assert ("\n" in quoted.rstrip("\n")) == (count + 1 > docstrings.WIDTH - 10)
