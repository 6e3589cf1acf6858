"""A checkpoint from a stranger: reading it runs nothing, opens nothing else, and asks nobody."""

import json
import os
import pickle
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch

from glassformer.base.errors import CheckpointError
from glassformer.store.checkpoint import load, load_optimizer
from glassformer.store.folders import MODEL
from store import examples


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A checkpoint to copy and to change."""
    return examples.save_step(tmp_path_factory.mktemp("saved"), 10)


HEARD: list[tuple[str, str]] = []
LOUD = ("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect")


def listen(event: str, args: tuple[object, ...]) -> None:
    if LISTENING and (event in LOUD or event == "open"):
        HEARD.append((event, str(args[0])))


LISTENING: list[bool] = []
sys.addaudithook(listen)


@pytest.fixture
def heard(tmp_path, saved):
    """What happens in the block besides reading the folder itself."""
    load(saved)  # whatever is imported when it is first used, is
    HEARD.clear()
    LISTENING.append(True)
    ours = (str(tmp_path), str(saved))
    yield lambda: [each for each in HEARD if each[0] != "open" or not each[1].startswith(ours)]
    LISTENING.clear()


class Canary:
    """Pickled, it makes a folder when it is unpickled."""

    def __init__(self, nest: Path) -> None:
        self.nest = nest

    def __reduce__(self) -> tuple[object, ...]:
        return (os.mkdir, (str(self.nest),))


ATTACKED = [
    "model.safetensors",
    "optimizer.safetensors",
    "config.json",
    "tokenizer.json",
    "state.json",
    "MANIFEST.json",
]
BESIDE = ["pytorch_model.bin", "optimizer.pt", "rng_state.pth", ".metadata", "__init__.py", "sitecustomize.py"]


@pytest.mark.parametrize("name", ATTACKED + BESIDE)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_pickle_under_any_name(saved, tmp_path, heard, name, protocol):
    folder = shutil.copytree(saved, tmp_path / "x")
    (folder / name).write_bytes(pickle.dumps(Canary(tmp_path / "nest"), protocol))
    if name in ATTACKED[:-1]:
        examples.rewrite_manifest(folder)
    for read in (load, load_optimizer):
        if name in BESIDE or (read, name) in SPARED:
            read(folder)
        else:
            with pytest.raises(CheckpointError, match=re.escape(name)):
                read(folder)
    assert not (tmp_path / "nest").exists()
    assert heard() == []


def test_canary_would_be_heard(tmp_path, heard):
    pickle.loads(pickle.dumps(Canary(tmp_path / "nest")))
    assert (tmp_path / "nest").exists()
    (tmp_path.parent / "elsewhere").write_text("x")
    assert [event for event, _ in heard()] == ["pickle.find_class", "open"]


JSON_OF_A_MODEL = ("config.json", "tokenizer.json", "state.json")
SPARED = [(load, "optimizer.safetensors"), *((load_optimizer, name) for name in JSON_OF_A_MODEL)]
"""What a reader does not read, so that it does not mind."""


def test_torch_file_under_the_name_of_a_safe_one(saved, tmp_path, heard):
    folder = shutil.copytree(saved, tmp_path / "x")
    torch.save({"a": torch.ones(2)}, folder / MODEL)
    examples.rewrite_manifest(folder)
    with pytest.raises(CheckpointError, match="looks like a pickle"):
        load(folder)


@pytest.mark.parametrize(
    "key", ["auto_map", "_attn_implementation_internal", "trust_remote_code", "library_name", "architectures", "path"]
)
def test_config_that_names_code(saved, tmp_path, heard, key):
    folder = shutil.copytree(saved, tmp_path / "x")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: "evil/repository--module.Class"}))
    examples.rewrite_manifest(folder)
    with pytest.raises(CheckpointError, match=f"{key} is not a setting"):
        load(folder)
    assert heard() == []
