"""What holds for every test: one thread, fixed seeds, no network, and torch left as it was found."""

import os
import random
import socket
import sys
import uuid
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

# Before torch is imported by anyone: the tensors of the tests are too small for a second thread to pay.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"

import hypothesis
import numpy
import pytest

import durations
import each_two
import some_shapes

# What a test starts finds the sources and the tests' modules as this process does.
HERE = (str(Path(__file__).parents[1] / "src"), str(Path(__file__).parent))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), *HERE)))

# The same examples at every run, and no time limit on one: a red test means a changed program, not a slow machine.
hypothesis.settings.register_profile("push", derandomize=True, deadline=None, max_examples=50, database=None)
hypothesis.settings.load_profile("push")
some_shapes.install()

collect_ignore = ["broken"]  # rows of `make laws`, which are no tests


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Which tests execute the shapes of our signatures, and which are slow: before pytest leaves out what is."""
    each_two.thin(items)
    if not config.getoption("durations_to"):
        durations.thin(items)
    some_shapes.choose(items, of_each_file=config.getoption("markexpr") == "not slow")


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: for a fifth of the time a test waits, for a disk, a browser or processes."""
    return (os.cpu_count() or 1) + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-to", type=Path, metavar="FILE", help="write what each test takes, for make slow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Around the fixtures too, so that what many tests share is checked when the first of them asks for it."""
    some_shapes.switch(item)
    before = durations.processor_time()
    try:
        return (yield)
    finally:
        if (path := item.config.getoption("durations_to")) and not item.get_closest_marker("promise"):
            durations.write(path, item, durations.processor_time() - before)


@pytest.fixture(autouse=True)
def same_start() -> None:
    """Every test starts from the same random numbers, whatever ran before it."""
    random.seed(0)
    numpy.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(autouse=True)
def own_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    """No test finds what another, or a user, has left in the cache, nor leaves anything there, but our compiled C++.

    That is compiled once for all workers and all sessions: its file names are hashes of sources, flags and processor.
    """
    compiled = pytestconfig.rootpath / ".pytest_cache" / "native"
    compiled.mkdir(parents=True, exist_ok=True)
    (own := tmp_path_factory.getbasetemp() / "cache" / uuid.uuid4().hex).mkdir(parents=True)
    (own / "native").symlink_to(compiled)
    monkeypatch.setenv("GLASSFORMER_CACHE", str(own))


@pytest.fixture(autouse=True)
def torch_left_as_found() -> Iterator[None]:
    """A test (or the code under it) that changes torch for everybody after it fails itself, by name."""
    before = torch_settings()
    yield
    after = torch_settings()
    changed = {name: (value, after[name]) for name, value in before.items() if value != after[name]}
    assert not changed, f"left behind (before, after): {changed}"


def torch_settings() -> dict[str, object]:
    """The settings of torch that outlive a test; empty while nobody has imported torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    return {
        "default dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "matmul precision": torch.get_float32_matmul_precision(),
        "mkldnn matmul": torch.backends.mkldnn.matmul.fp32_precision,
    }


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """The path of a file or folder in `shared/data`, in the checkout or beside it; a test without it is skipped."""
    root = Path(__file__).parents[1]

    def find(name: str) -> Path:
        for folder in (root / "shared" / "data", root.parent / "shared" / "data"):
            if (folder / name).exists():
                return folder / name
        pytest.skip(f"shared/data/{name} is not here; it comes with the project's data folder, not with the package")

    return find


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A file of benchmarks/ by its name."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return import_module


@pytest.fixture
def threads() -> Iterator[int]:
    """How many threads torch has. The test may change it."""
    import torch

    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything works offline: a connection to anything but this machine is an error."""
    connect = socket.socket.connect

    def refuse(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else address
        if self.family != socket.AF_UNIX and host not in ("127.0.0.1", "::1", "localhost"):
            self.close()  # nobody above expects this error and would close it
            raise AssertionError(f"a test tried to reach {host}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", refuse)
