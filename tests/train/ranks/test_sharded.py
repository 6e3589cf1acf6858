"""What torch.distributed.checkpoint writes of a model that is cut: here all parts are those of one process."""

import errno

import pytest
from torch.distributed.checkpoint.filesystem import FileSystem

from glassformer.base.errors import CheckpointError, ResourceError
from glassformer.data.config import TokenizerConfig
from glassformer.data.dataset import build_tokenizers
from glassformer.data.pairs import Pair
from glassformer.store.checkpoint import load, load_optimizer
from glassformer.train.ranks.distributed import ALONE
from glassformer.train.ranks.sharded import agreed, take_parts, write_parts
from train.examples import Agreeing, assert_same, model, weights

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def saved(folder):
    tokenizers = build_tokenizers(TokenizerConfig(), [Pair("a b c", "d e f")])
    network = model(vocab=tokenizers.target.vocab_size)
    write_parts(folder, take_parts(network, tokenizers, ALONE, optimizer={}, state={}), ALONE)
    return network


@pytest.mark.parametrize(
    ("number", "kind", "message"),
    [(errno.ENOSPC, ResourceError, "the disk is full"), (errno.EACCES, CheckpointError, "you may write in the folder")],
    ids=["full", "forbidden"],
)
def test_a_disk_that_fails_is_told_of(tmp_path, monkeypatch, number, kind, message):
    """torch wraps it in what no `except Exception` sees."""

    def fails(*given, **more):
        raise OSError(number, "as the system says")

    monkeypatch.setattr(FileSystem, "create_stream", fails)
    with pytest.raises(kind, match=message):
        saved(tmp_path / "step")
    assert list(tmp_path.iterdir()) == []


def test_what_another_process_could_not_write_is_written_by_none():
    with pytest.raises(CheckpointError, match="Another process could not write its part"), agreed(Agreeing()):
        pass
    with pytest.raises(OSError, match="full"), agreed(Agreeing()):
        raise OSError(errno.ENOSPC, "full")
    with agreed(ALONE):
        pass


def test_an_optimizer_that_has_kept_nothing_is_saved(tmp_path):
    network = saved(tmp_path / "step")
    assert_same(weights(load(tmp_path / "step").model), weights(network))
    assert load_optimizer(tmp_path / "step") == {}
