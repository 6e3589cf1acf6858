"""What went wrong becomes one message and an exit code; a bug of ours keeps its traceback."""

import errno
import os
import shlex
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fresh import python
from glassformer.base import errors
from glassformer.cli.main import REQUIRED
from glassformer.train.recipe import Recipe, dumps_recipe, override

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["trian"], ["no verb 'trian'", "Did you mean 'train'?", "glassformer --help"]),
        (
            ["reverse"],
            [
                "no verb 'reverse'",
                "train, resume, evaluate, generate, translate, serve, classify, tag, predict, rollout, explore, ",
            ],
        ),
        (["--trian"], ["no verb '--trian'"]),
        ([""], ["no verb ''"]),
        (["train"], ["needs a recipe", "reverse", ".toml", "Usage: glassformer train RECIPE"]),
        (["train", "--model.d-ff", "8"], ["needs a recipe"]),
        (["resume"], ["needs a run folder", "Usage: glassformer resume RUN"]),
        (["train", "revers"], ["no recipe 'revers'", "Did you mean 'reverse'?"]),
        (["train", "revers.toml"], ["revers.toml", "No such file"]),
        (
            ["train", "reverse", "--model.n-heads", "3"],
            ["--model.d-model (64)", "--model.n-heads (3)", "try --model.n-heads 2"],
        ),
        (
            ["train", "reverse", "--training.steps=-5"],
            ["--training.steps must be at least 1; got -5. Try --training.steps 1."],
        ),
        (["train", "reverse", "--data.task", "revers"], ["Did you mean 'reverse'?"]),
        (["train", "reverse", "--data.train", "x.tsv"], ["--data.train ", "--data.task reverse", "--data.task pairs"]),
        (["train", "reverse", "--data.max-length", "4"], ["--data.max-length (4)", "--data.min-length (8)"]),
        (["train", "multi30k", "--data.train-source", "x"], ["--data.train-source", "--data.train-target"]),
        (["train", "n" * 300], ["too long", "Give a shorter one"]),
        (["resume", "n" * 300], ["too long", "Give a shorter one"]),
        (["evaluate", "nowhere"], ["nowhere is not a run folder", "does not exist", "glassformer train"]),
        (["translate", "nowhere"], ["nowhere is not a run folder"]),
        (["params", "nowhere"], ["nowhere is not a run folder: it does not exist, and no preset has that name"]),
        (["params", "gpt-2"], ["Known: 'bart-base', ", "Did you mean 'gpt2'?"]),
        (["params"], ["needs a run folder or a preset such as gpt2", "Usage: glassformer params RUN|PRESET"]),
        *(([verb, "nowhere"], ["nowhere is not a run folder"]) for verb in ("resume", "explore", "heads")),
        (["evaluate", "nowhere", "--split", "tset"], ["nowhere is not a run folder"]),
    ],
)
def test_mistakes_of_the_user(refused, session, words, facts):
    message = refused(*words)
    assert all(fact in message for fact in facts), message
    assert session.calls == []
    assert not list(Path.cwd().iterdir())


class OutOfMemoryError(RuntimeError):
    """As torch calls its own."""


@pytest.mark.parametrize("error", [
    MemoryError(),
    MemoryError("1 TB"),
    OutOfMemoryError("Tried to allocate 2.00 GiB.\nmore lines\n"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("MPS backend out of memory"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
], ids=repr)  # fmt: skip
def test_out_of_memory(refused, session, error):
    session.failure = error
    message = refused("train", "reverse", code=5)
    assert message.startswith("glassformer: Memory ran out (")
    assert all(fact in message for fact in ("--training.batch-tokens", "--training.accumulate", "--batch-size"))


def test_a_package_that_is_needed_is_not_there(refused, session):
    session.failure = ModuleNotFoundError("No module named 'torch'", name="torch")
    message = refused("train", "reverse")
    assert message.startswith("glassformer: The package torch is needed, but it is not installed. Install it: ")
    assert f"{shlex.quote(sys.executable)} -m pip install torch." in message
    session.failure = ModuleNotFoundError("No module named 'markdown_it'", name="markdown_it")
    assert "-m pip install markdown-it-py." in refused("train", "copy")


def test_each_package_that_is_needed_is_known():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert sorted(REQUIRED.values()) == sorted(each.partition(">=")[0] for each in project["dependencies"])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_out_of_disk(refused, session, number):
    session.failure = OSError(number, os.strerror(number), "log.txt")
    message = refused("train", "reverse", code=5)
    assert "disk is full" in message
    assert "log.txt" in message


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_folder_of_somebody_else(refused, session, number):
    session.failure = OSError(number, os.strerror(number), "runs/x")
    assert "runs/x cannot be used" in refused("train", "reverse")


@pytest.mark.parametrize("bug", [
    ValueError("x"),
    KeyError("x"),
    RuntimeError("shape mismatch"),
    ImportError("x", name="torch.x"),
    OSError(errno.EBADF, "x"),
    AssertionError(),
])  # fmt: skip
def test_bug_keeps_its_traceback(run, session, bug):
    session.failure = bug
    with pytest.raises(type(bug)):
        run("train", "reverse")


def test_debug_shows_the_traceback(run, session, monkeypatch):
    session.failure = errors.DataError("no good")
    with pytest.raises(errors.DataError):
        run("train", "reverse", "--debug")
    monkeypatch.setenv("GLASSFORMER_DEBUG", "1")
    with pytest.raises(errors.DataError):
        run("train", "reverse", "--out", "x")


@pytest.mark.parametrize("off", ["", "0"])
def test_debug_can_be_off(refused, session, monkeypatch, off):
    monkeypatch.setenv("GLASSFORMER_DEBUG", off)
    session.failure = errors.DataError("no good")
    refused("train", "reverse")


def test_ctrl_c_while_nothing_is_trained(run, session):
    session.failure = KeyboardInterrupt()
    Path("recipe.toml").touch()
    answer = run("evaluate", ".")
    assert (answer.code, answer.out) == (130, "")
    assert answer.err.endswith("glassformer: Stopped.\n")


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(closed):
    command = f"{shlex.quote(sys.executable)} -m glassformer --version {closed}"
    answer = subprocess.run(command, shell=True, capture_output=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, b"")


def test_the_command_itself():
    """As the shell sees it: exit code, and no traceback on the way out."""
    answer = python("-m", "glassformer", "train", "revers")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("glassformer: There is no recipe 'revers'.")
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(("stream", "word"), [("stdout", "--version"), ("stdout", "--help"), ("stderr", "trian")])
def test_reader_that_goes_away(stream, word):
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {stream: writer}
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}  # as at a user's
    answer = subprocess.run([sys.executable, "-m", "glassformer", word], env=environment, check=False, **streams)
    os.close(writer)
    assert answer.returncode == 141
    assert not answer.stdout
    assert not answer.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_terminal_encoding(encoding, tmp_path):
    words = ("-m", "glassformer", "train", "größe-漢")
    answer = python(*words, cwd=tmp_path, env=os.environ | {"PYTHONIOENCODING": encoding}, encoding=encoding)
    assert answer.returncode == 2
    assert answer.stderr.startswith("glassformer: There is no recipe 'gr")
    assert "Traceback" not in answer.stderr


def test_output_in_any_terminal_encoding(tmp_path):
    (tmp_path / "größe.toml").touch()
    words = ("-m", "glassformer", "train", "größe.toml", "--help")
    answer = python(*words, cwd=tmp_path, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (answer.returncode, answer.stderr) == (0, "")
    assert r"the value in gr\xf6\xdfe.toml" in answer.stdout


def test_name_that_is_no_text(tmp_path):
    answer = python("-m", "glassformer", "train", os.fsdecode(b"caf\xe9"), cwd=tmp_path)
    assert answer.returncode == 2
    assert "There is no recipe" in answer.stderr


# --- What can be refused before torch is imported, which takes seconds, is


NO_LIBRARY = "sys.modules['llguidance'] = None; "
CODE = (
    "from glassformer.cli.main import main; code = main(sys.argv[1:]); "
    "assert 'torch' not in sys.modules; sys.exit(code)"
)
CASES = {
    "a bias": (["generate", "RUN", "--prompt", "a", "--bias", "x"], "--bias takes TEXT=X"),
    "a seed": (["generate", "RUN", "--prompt", "a", "--greedy", "--seed", "3"], "so --seed 3 would have no effect"),
    "a cache": (
        ["serve", "RUN", "--decode.compile", "--decode.cache", "int8"],
        "Compiled steps need an exact KV cache; got --decode.compile and --decode.cache int8. Set --decode.no-compile",
    ),
    "a library": (
        ["generate", "RUN", "--prompt", "a", "--regex", "a+"],
        "need llguidance, which is not installed. Install it: pip install 'llguidance",
    ),
    "no text": (
        ["evaluate", "RUN"],
        "The test split needs a text, and the recipe names none. Give one with --data.text",
    ),
    "a file": (["train", "lm", "--data.text", "nowhere.txt"], "nowhere.txt: there is no such file. Check the path"),
    "a port": (["serve", "RUN", "--port", "PORT"], "The server cannot listen at 127.0.0.1, port "),
}


@pytest.mark.parametrize("module", ["glassformer.cli.main", "glassformer.cli.verbs"])
def test_ctrl_c_is_obeyed_while_the_command_is_loaded(module):
    code = (
        "import sys\n"
        "class Stop:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stop())\n"
        "from glassformer.cli import entry; sys.exit(entry())"
    )
    answer = python("-c", code)
    assert (answer.returncode, answer.stdout, answer.stderr) == (130, "", "glassformer: Stopped.\n")


@pytest.fixture
def run_on_text(tmp_path):
    changes = {"data.task": "text", "data.layout": "decoder", "data.text": "book.txt", "data.window": 8}
    changes |= {"training.metric": "loss", "tokenizer.kind": "character"}
    (tmp_path / "recipe.toml").write_text(dumps_recipe(override(Recipe("early"), changes)))
    return tmp_path


@pytest.mark.parametrize("name", CASES)
def test_is_refused_before_torch_is_imported(run_on_text, name):
    words, message = CASES[name]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = {"RUN": str(run_on_text), "PORT": str(taken.getsockname()[1])}
        code = f"import sys; {NO_LIBRARY if name == 'a library' else ''}{CODE}"
        answer = python("-c", code, *(given.get(word, word) for word in words), stdin=subprocess.DEVNULL)
    assert message in answer.stderr
    assert answer.returncode == 2, answer.stderr
