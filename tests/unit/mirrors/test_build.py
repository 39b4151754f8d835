"""The mirrors of hansa.sync are as the asynchronous classes are, and the check of it can fail."""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hansa import sync
from mirrors import build
from mirrors.plan import Attribute, Mirrored, Page, Result

ROOT = Path(__file__).resolve().parents[3]

COG = '''\
from collections.abc import Callable
from hansa.hulls import Hull, Wreck
_TONS = 2 * 60

class Cog(Hull[Wreck]):
    """Carries salt. Use it with `async with`."""

    def __init__(self, port: str, *, tons: int = _TONS, deck: bool = True, name: str = "cog") -> None:
        self.port = port

    async def __aenter__(self) -> "Cog": ...

    async def close(self) -> None:
        """End the journey."""

    async def sail(self, to: str, *, knots: float = 4.5) -> int:
        """Go there; gives the miles. Cancelling it turns back."""

    @property
    def cargo(self) -> str:
        """What is in it."""

    def hail(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call it for each ship that passes."""

    def _caulk(self) -> None: ...
'''

HULL = '''\
from typing import Generic, TypeVar
E = TypeVar("E")

class Wreck: ...

class Hull(Generic[E]):
    async def sunk(self) -> E:
        """Wait until it is sunk."""
'''

MIRROR = '''\
"""Ships, for threads."""

# Written by `python -m mirrors.build` from the asynchronous classes: change those, or mirrors/plan.py.

from __future__ import annotations

from collections.abc import Callable

from hansa.hulls import Wreck
from hansa.ships import Cog as AsyncCog
from hansa.sync.mirror import Mirror, shielded, within


class Cog(Mirror[AsyncCog]):
    """Carries salt. Use it with `with`."""

    def __init__(self, port: str, *, tons: int = 2 * 60, name: str = "cog") -> None:
        """Raises BadArgument."""
        super().__init__(name, AsyncCog(port, tons=tons, name=name))

    @property
    def port(self) -> str:
        """Where it lies."""
        return self._inner.port

    def sunk(self, timeout: float | None = None) -> Wreck:
        """Wait until it is sunk. Raises TimedOut, and AlreadyClosed when it is closed."""
        return self._call(lambda: within(timeout, self._inner.sunk, f"{self.name} still floats"), "sunk")

    def close(self) -> None:
        """End the journey."""
        self.__exit__(None, None, None)

    def sail(self, to: str, *, knots: float = 4.5) -> int:
        """Go there; gives the miles. Interrupting it turns back."""
        return self._call(lambda: self._inner.sail(to, knots=knots), "sail")

    @property
    def cargo(self) -> str:
        """What is in it."""
        return self._ask(lambda: self._inner.cargo)

    def hail(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call it for each ship that passes.

        The function runs in hansa's thread, which all calls wait for: it must be quick and must not wait.
        """
        stop = self._ask(lambda: self._inner.hail(shielded(callback)))
        return lambda: self._ask(stop)
'''


def planned(**more: object) -> Page:
    said = {
        "docs": {"__init__": "Raises BadArgument."},
        "attributes": {"port": Attribute(type="str", doc="Where it lies.")},
        "without": frozenset({"deck"}),
        "bounded": {"sunk": "{self.name} still floats"},
        **more,
    }
    cog = Mirrored(name="Cog", module="hansa.ships", base="Mirror", base_arguments="name, {inner}", **said)  # type: ignore[arg-type]
    return Page(name="fleet", opening="Ships, for threads.", classes=(cog,))


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small hansa with one asynchronous class, and a plan for it; gives its folder."""
    hansa = tmp_path / "src" / "hansa"
    (hansa / "sync").mkdir(parents=True)
    (hansa / "ships.py").write_text(COG)
    (hansa / "hulls.py").write_text(HULL)
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "SOURCE", tmp_path / "src")
    monkeypatch.setattr(build, "SYNC", hansa / "sync")
    monkeypatch.setattr(build, "PAGES", (planned(),))
    build.module_of.cache_clear()
    yield hansa
    build.module_of.cache_clear()


def test_the_mirrors_are_up_to_date() -> None:
    assert list(build.outdated()) == [], "run make fix"


def test_help_is_complete() -> None:
    """Every public member of everything that hansa.sync exports says what it is for."""
    for name in sync.__all__:
        exported = getattr(sync, name)
        assert inspect.getdoc(exported)
        for member, value in inspect.getmembers(exported):
            assert member.startswith("_") or inspect.getdoc(value), f"{name}.{member} has no docstring"


def test_a_class_is_mirrored_as_the_plan_says(planted: Path) -> None:
    assert build.main([]) == 0
    assert (planted / "sync" / "fleet.py").read_text() == MIRROR


def test_a_class_may_have_another_mirror_that_a_call_gives(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    berth = Mirrored(
        name="Berth",
        of="Cog",
        module="hansa.ships",
        owner="harbour",
        is_made=True,
        what="a berth",
        attributes={"port": Attribute(type="str", doc="Where it lies.")},
        without=frozenset({"deck", "close", "hail", "sail", "cargo"}),
        bounded={"sunk": "it still floats"},
    )
    page = planned(closes=frozenset({"close"}))
    monkeypatch.setattr(build, "PAGES", (replace(page, classes=(*page.classes, berth)),))
    monkeypatch.setattr(build, "OWNERS", {"harbour": "Cog | Hulk"})
    monkeypatch.setattr(build, "RESULTS", {"int": Result(type="Berth", made="Berth({owner}, {inner})")})
    assert build.main([]) == 0
    text = (planted / "sync" / "fleet.py").read_text()
    for expected in (
        "class Berth:\n",
        "    def __init__(self, harbour: Cog | Hulk, inner: AsyncCog) -> None:\n",
        '            lambda: within(timeout, self._inner.sunk, "it still floats"), "sunk of a berth"\n',
        "    def sail(self, to: str, *, knots: float = 4.5) -> Berth:\n",
        '        return Berth(self, self._call(lambda: self._inner.sail(to, knots=knots), "sail"))\n',
        "        self._close(self._inner.close)\n",
    ):
        assert expected in text


def test_a_mirror_that_is_up_to_date_passes(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build.main([])
    assert build.main(["--check"]) == 0
    assert capsys.readouterr().out == ""


def test_a_stale_mirror_is_named_and_left_as_it_is(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build.main([])
    (planted / "ships.py").write_text(COG.replace("knots: float = 4.5", "knots: float = 5.0"))
    build.module_of.cache_clear()
    assert build.main(["--check"]) == 1
    assert capsys.readouterr().out == "src/hansa/sync/fleet.py is out of date: run make fix\n"
    assert (planted / "sync" / "fleet.py").read_text() == MIRROR


def test_a_missing_mirror_is_named(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build.main(["--check"]) == 1
    assert "src/hansa/sync/fleet.py" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("plan", "change", "problem"),
    [
        ({"by_hand": frozenset({"row"})}, ("", ""), "hansa.ships.Cog has no row"),
        ({"attributes": {"mast": Attribute(type="str", doc="It.")}}, ("", ""), "hansa.ships.Cog has no mast"),
        ({}, ('"""What is in it."""', "..."), "Cog.cargo has no docstring"),
        ({}, ("What is in it.", "Write `await`."), "Cog.cargo: its docstring says await"),
        ({}, ("-> int:", "-> AsyncIterator[int]:"), "Cog.sail gives AsyncIterator[int]: write it by hand"),
        ({}, ("to: str", "to"), "sail(to) has no type"),
        ({}, ("to: str, *,", "*to: str,"), "sail takes arguments that no rule is for"),
        ({}, ("class Cog", "class Hulk"), "hansa.ships has no class Cog"),
    ],
)
def test_what_the_plan_cannot_mean_is_told(
    planted: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    plan: dict[str, object],
    change: tuple[str, str],
    problem: str,
) -> None:
    monkeypatch.setattr(build, "PAGES", (planned(**plan),))
    (planted / "ships.py").write_text(COG.replace(*change, 1) if change[0] else COG)
    assert build.main(["--check"]) == 1
    assert problem in capsys.readouterr().out
