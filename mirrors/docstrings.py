"""Docstrings of asynchronous members, told to threads. Pure.

What a cancellation is to a task, an interrupt (Ctrl-C) is to a thread that waits: it ends the same work in
the same way. Event loops do not concern threads: all they know of is the one thread behind hansa.sync.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Final

WIDTH: Final = 110
THREAD: Final = "hansa's thread"
CALLBACK: Final = (
    f"The function runs in {THREAD}, which all calls wait for: it must be quick and must not wait."
)
ANYWHERE: Final = "Asks nobody, and never waits."

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")

# Of a whole sentence; the first that matches is applied. Where nothing is left, the sentence goes.
_SENTENCES: Final = (
    (r"^(?:In it, it|It) belongs to (?:the|one) event loop.*, and is used once\.$", "It is used once."),
    (r"^It belongs to (?:the|one) event loop.*?, but ", ""),
    (r"^.* belongs to (?:the|one) event loop.*$", ""),
    (r"^Any thread may ask\.$", ANYWHERE),
)

# Of words, all of them, in order.
_WORDS: Final = (
    (r"`async with\b", "`with"),
    (r"\bAn async iterator\b", "A blocking iterator"),
    (r"\ban async iterator\b", "a blocking iterator"),
    (r"\bCancelling\b", "Interrupting"),
    (r"\bcancelling\b", "interrupting"),
    (r"\bCancelled\b", "Interrupted"),
    (r"\bcancelled\b", "interrupted"),
    (r"\bCancellation\b", "An interrupt"),
    (r"\b(?:a )?cancellation\b", "an interrupt"),
    (r"\bin a loop that is stuck\b", f"while {THREAD} is stuck"),
    (r"\bwhile the (?:event )?loop is stuck\b", f"while {THREAD} is stuck"),
    (r"\b(?:the|this process's) event loop\b", THREAD),
    (r"\bin the loop\b", f"in {THREAD}"),
    (r"\btask(s?)\b", r"thread\1"),
)

# Left over, they say what does not hold: such a docstring is written anew, in the plan.
_FOREIGN = re.compile(r"\basync\b|\bawait\w*|\basyncio\b|\bcancel(?!_)\w*|\bevent loop\b")


def for_threads(doc: str) -> str:
    """The docstring for those who have no event loop."""
    paragraphs = [_paragraph(paragraph) for paragraph in inspect.cleandoc(doc).split("\n\n")]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def with_sentence(doc: str, sentence: str) -> str:
    """The docstring with one more sentence at its end, unless it says so already."""
    return doc if sentence in doc else f"{doc} {sentence}"


def foreign_words(doc: str) -> list[str]:
    """Words that mean nothing to a thread, or something else."""
    return _FOREIGN.findall(doc)


def quoted(doc: str, indent: int) -> str:
    """As it stands in the source: the summary in a line of its own, if it fits, all else filled."""
    margin = " " * indent
    summary, *rest = [" ".join(part.split()) for part in inspect.cleandoc(doc).split("\n\n")]
    # Sentences that have no room beside the first one begin the text.
    sentences = _SENTENCE.split(summary)
    count = len(sentences)
    while count > 1 and len(" ".join(sentences[:count])) + 3 * (2 - bool(rest)) > WIDTH - indent:
        count -= 1
    if count < len(sentences):
        rest.insert(0, " ".join(sentences[count:]))
    first = _filled(f'"""{" ".join(sentences[:count])}', margin)
    if not rest and len(first) + 3 <= WIDTH:
        return f'{first}"""\n'
    return "\n\n".join([first, *(_filled(paragraph, margin) for paragraph in rest)]) + f'\n{margin}"""\n'


def _paragraph(paragraph: str) -> str:
    sentences = _SENTENCE.split(" ".join(paragraph.split()))
    told = [_sentence(sentence) for sentence in sentences]
    return " ".join(sentence for sentence in told if sentence)


def _sentence(sentence: str) -> str:
    for pattern, instead in _SENTENCES:
        changed, count = re.subn(pattern, instead, sentence)
        if count:
            # It may have lost its beginning.
            sentence = changed[:1].upper() + changed[1:]
            break
    for pattern, instead in _WORDS:
        sentence = re.sub(pattern, instead, sentence)
    return sentence


def _filled(paragraph: str, margin: str) -> str:
    return textwrap.fill(
        paragraph,
        WIDTH,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )
