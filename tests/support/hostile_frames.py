"""Frames that a decoder must survive: arbitrary ones, and valid ones with something wrong."""

import tracemalloc
from collections.abc import Callable, Sequence

import pytest
from hypothesis import strategies as st

from hansa.errors import BadFrame

arbitrary_frames = st.lists(st.binary(max_size=40), max_size=12)


@st.composite
def damaged(draw: st.DrawFn, valid: st.SearchStrategy[list[bytes]]) -> list[bytes]:
    """A valid message with one to three faults: frames cut, gone, doubled, swapped, or bytes changed."""
    frames = list(draw(valid))
    for _ in range(draw(st.integers(1, 3))):
        if not frames:
            break
        at = draw(st.integers(0, len(frames) - 1))
        fault = draw(
            st.sampled_from(["cut-list", "drop", "double", "swap", "replace", "shorten", "lengthen", "flip"])
        )
        frame = frames[at]
        if fault == "cut-list":
            del frames[at:]
        elif fault == "drop":
            del frames[at]
        elif fault == "double":
            frames.insert(at, frame)
        elif fault == "swap":
            other = draw(st.integers(0, len(frames) - 1))
            frames[at], frames[other] = frames[other], frame
        elif fault == "replace":
            frames[at] = draw(st.binary(max_size=300))
        elif fault == "shorten":
            frames[at] = frame[: draw(st.integers(0, len(frame)))]
        elif fault == "lengthen":
            frames[at] = frame + draw(st.binary(min_size=1, max_size=8))
        elif frame:
            byte = draw(st.integers(0, len(frame) - 1))
            mask = draw(st.integers(1, 255))
            frames[at] = frame[:byte] + bytes((frame[byte] ^ mask,)) + frame[byte + 1 :]
    return frames


def value_or_bad_frame(decode: Callable[[list[bytes]], object], frames: list[bytes]) -> object | None:
    """What decoding gave, or None for `BadFrame`; any other exception passes through and fails the test."""
    try:
        return decode(frames)
    except BadFrame:
        return None


def assert_refused_for_nothing(decode: Callable[[list[bytes]], object], frames: Sequence[bytes]) -> None:
    """Refused with `BadFrame`, having allocated no more than an exception and its text."""
    listed = list(frames)
    tracemalloc.start()
    try:
        with pytest.raises(BadFrame):
            decode(listed)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * 1024
