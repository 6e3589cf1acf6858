"""Small models, tokenizers and run folders for the tests of `store`, and how to compare them bit for bit."""

from pathlib import Path

import torch
from torch import Tensor

from glassformer import ModelConfig, StackConfig, Transformer
from glassformer.data.config import TokenizerConfig
from glassformer.data.dataset import Tokenizers, build_tokenizers
from glassformer.data.pairs import Pair
from glassformer.store.checkpoint import Loaded, load, load_optimizer, save
from glassformer.store.files import staged_folder, write_new
from glassformer.store.folders import MANIFEST, REQUIRED, step_folder, write_manifest

PAIRS = [Pair("one two three", "un deux trois"), Pair("four", "quatre")]


def tokenizers(**config: object) -> Tokenizers:
    return build_tokenizers(TokenizerConfig(**config), PAIRS)


def model(seed: int = 0, **config: object) -> Transformer:
    """An encoder-decoder of one block each, whose embeddings and head are one matrix unless `config` says otherwise."""
    torch.manual_seed(seed)
    stack = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=12)
    given = {"vocab_size": tokenizers().target.vocab_size, "encoder": stack, "decoder": stack, **config}
    made = Transformer(ModelConfig(**given))
    with torch.no_grad():  # zeros and ones look alike after many a mistake
        for parameter in made.parameters():
            parameter.normal_()
    return made


def moments(of: Transformer, seed: int = 0) -> dict[str, dict[str, Tensor]]:
    """What AdamW keeps for each parameter."""
    torch.manual_seed(seed)
    return {
        name: {"exp_avg": torch.randn_like(p), "exp_avg_sq": torch.rand_like(p), "step": torch.tensor(float(seed))}
        for name, p in of.named_parameters()
    }


def save_step(run: Path, step: int, **state: object) -> Path:
    """A whole checkpoint whose content depends on the step (as a seed) and on `state`."""
    made = model(step)
    state = {"step": step, **state}
    return save(step_folder(run, step), made, tokenizers(), optimizer=moments(made, step), state=state)


def assert_is_step(folder: Path, step: int, **state: object) -> Loaded:
    """Loads what `save_step` saved, and it is that, bit for bit."""
    loaded, expected = load(folder), model(step)
    assert loaded.state == {"step": step, **state}
    same_weights(loaded.model, expected)
    same_moments(load_optimizer(folder), moments(expected, step))
    return loaded


def tiny_step(run: Path, step: int, text: str = "") -> Path:
    """A checkpoint for tests that look at folders only: the right files, complete, but empty of meaning."""
    with staged_folder(step_folder(run, step), 0) as staging:
        for name in REQUIRED:
            write_new(staging / name, f"{name} {step} {text}".encode())
        write_manifest(staging)
    return step_folder(run, step)


def plain_step(run: Path, step: int) -> Path:
    """As `tiny_step`, without the care: for tests that need many, and do not test how they came there."""
    folder = step_folder(run, step)
    folder.mkdir(parents=True)
    for name in REQUIRED:
        (folder / name).write_text(f"{name} {step}")
    write_manifest(folder)
    return folder


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal dtype, shape and bytes: NaN equals itself, 0 is not -0."""
    raw = [x.detach().contiguous().reshape(-1).view(torch.uint8) for x in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*raw)


def same_weights(a: Transformer, b: Transformer) -> None:
    ours, theirs = a.state_dict(), b.state_dict()
    assert list(ours) == list(theirs)
    assert [name for name in ours if not same_bits(ours[name], theirs[name])] == []


def same_moments(a: dict[str, dict[str, Tensor]], b: dict[str, dict[str, Tensor]]) -> None:
    assert {name: set(slots) for name, slots in a.items()} == {name: set(slots) for name, slots in b.items()}
    assert all(same_bits(a[name][slot], b[name][slot]) for name in b for slot in b[name])


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder: Path) -> list[str]:
    """What lies in a folder, also what is hidden."""
    return sorted(path.name for path in folder.iterdir())


def rewrite_manifest(folder: Path) -> None:
    """Makes the manifest agree with what lies there: the attack of someone who knows the format."""
    (folder / MANIFEST).unlink()
    write_manifest(folder)
