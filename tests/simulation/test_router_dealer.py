"""Sockets under cuts, pauses, crashes and restarts lose nothing that they do not report as lost."""

from hansa.testing import Outcome, Simulation
from hansa.testing.scenarios import RouterDealer
from tests.support.gate_seeds import gate_seeds


@gate_seeds()
def test_nothing_is_lost_that_was_not_reported(seeds: list[int]) -> None:
    for seed in seeds:
        Simulation(seed, RouterDealer).run()


def test_without_faults_everything_arrives() -> None:
    class Calm(RouterDealer):
        """The same, with a look at the books when it is over."""

        def unsettled(self) -> str:
            missing = [str(letter) for channel in self.ledger.channels for letter in channel.missing()]
            return super().unsettled() or "\n".join(missing)

    for seed in range(5):
        outcome = Simulation(seed, Calm).play(())
        assert isinstance(outcome, Outcome), outcome
        assert outcome.facts_count > 500
