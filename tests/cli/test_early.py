"""What can be refused before torch is imported, which takes seconds, is."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from glassformer.train.recipe import Recipe, dumps_recipe, override

SOURCE = Path(__file__).resolve().parents[2] / "src"
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
    command, environment = [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": str(SOURCE)}
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (answer.returncode, answer.stdout, answer.stderr) == (130, "", "glassformer: Stopped.\n")


@pytest.fixture
def run_on_text(tmp_path):
    changes = {"data.task": "text", "data.layout": "decoder", "data.text": "book.txt", "data.window": 8}
    changes |= {"training.metric": "loss", "tokenizer.kind": "character"}
    (tmp_path / "recipe.toml").write_text(dumps_recipe(override(Recipe("early"), changes)))
    return tmp_path


@pytest.mark.parametrize("name", CASES)
def test_is_refused_before_torch_is_imported(run_on_text, name):
    words, says = CASES[name]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = {"RUN": str(run_on_text), "PORT": str(taken.getsockname()[1])}
        code = f"import sys; {NO_LIBRARY if name == 'a library' else ''}{CODE}"
        command = [sys.executable, "-c", code, *(given.get(word, word) for word in words)]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
        answer = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False, stdin=subprocess.DEVNULL
        )
    assert says in answer.stderr
    assert answer.returncode == 2, answer.stderr
