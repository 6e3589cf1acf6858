"""What becomes of a run between two steps: a signal to several processes, and memory that runs out there."""

from glassformer.base.launched import Launched
from glassformer.store.checkpoint import load
from glassformer.train.ranks.distributed import Ranks
from glassformer.train.records import Saved
from glassformer.train.run.session import start
from train.examples import recipe


class Agreed(Ranks):
    """The first of two processes, of which the other is told the same and says so."""

    def __init__(self) -> None:
        super().__init__(Launched(0, 2, 0, 2))

    def _reduced(self, value, operation):
        return float(value)


def test_a_signal_to_several_comes_before_the_evaluation(tmp_path):
    """It is left due, as they would have to go on to its end; `gathered` would fail here, as nobody else is there."""
    session = start(recipe(), tmp_path / "run")
    session.ranks, session.evaluation_due = Agreed(), True
    session.interrupt()
    steps = session._after_step()
    assert [type(event) for event in steps] == [Saved]
    assert load(tmp_path / "run").state["evaluation_due"]
    assert session._ended() == "interrupted"
