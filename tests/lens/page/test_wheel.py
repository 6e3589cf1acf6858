"""The wheel has the page: nothing of it is left behind where the package is built."""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import venv
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

import glassformer
from lens.explored import SCREENS

PACKAGE = Path(glassformer.__file__).parent
ROOT = PACKAGE.parents[1]
BUILD = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
OPEN = """
from pathlib import Path
from glassformer.lens.page.bundle import served, standalone
from glassformer.lens.page.bundle import resources
from glassformer.lens.trace.file import header_schema
import glassformer
assert header_schema() and "page.js" in served() and len(standalone([], {"name": "empty"})) > 50_000
print(Path(glassformer.__file__).parent, *resources())
"""


TINY = (
    *("--model.d-model", "16", "--model.n-heads", "2", "--model.n-layers", "1", "--model.d-ff", "16"),
    *("--training.steps", "2", "--training.batch-tokens", "256", "--training.evaluate-every", "2"),
    *("--data.train-size", "64", "--data.dev-size", "5", "--data.test-size", "6", "--training.device", "cpu"),
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel of this tree."""
    if find_spec("hatchling") is None:
        pytest.skip("hatchling, which builds the wheel, is not installed (make setup)")
    if not (ROOT / "pyproject.toml").exists():
        pytest.skip("the package is installed, and its sources are elsewhere")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def wheel(built):
    """The wheel of this tree, unpacked."""
    with ZipFile(built) as packed:
        packed.extractall(built.parent / "site")
    return built.parent / "site"


def test_the_wheel_has_every_file_of_the_page(wheel):
    here = [each for each in (PACKAGE / "lens" / "page").iterdir() if each.suffix in (".js", ".css", ".html")]
    assert len(here) > 30
    for each in [*here, PACKAGE / "lens" / "trace" / "schema.json"]:
        packed = wheel / "glassformer" / each.relative_to(PACKAGE)
        assert packed.read_bytes() == each.read_bytes(), each.name


def test_the_page_is_made_from_the_wheel(wheel):
    """In a process that sees the unpacked wheel alone."""
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    output = subprocess.run(
        [sys.executable, "-c", OPEN], env=environment, check=True, stdout=subprocess.PIPE, text=True, cwd=wheel
    )
    place, *names = output.stdout.split()
    assert Path(place) == wheel / "glassformer"
    assert "main.js" in names


@pytest.mark.slow
def test_a_fresh_environment_serves_the_page(built, tmp_path, watched):
    """The wheel, installed without any index into an environment of its own, trains a run and shows it.

    Torch and what else it needs are lent by this environment: behind the environment's own packages, without its
    editable installs.
    """
    venv.create(tmp_path / "fresh", with_pip=False)
    python = tmp_path / "fresh" / "bin" / "python"
    install = ["-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps", "--quiet", str(built)]
    subprocess.run([sys.executable, *install], check=True)
    (site,) = (tmp_path / "fresh" / "lib").glob("python*/site-packages")
    (site / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    show = {"env": outside, "cwd": tmp_path, "text": True}
    where = [str(python), "-c", "import glassformer; print(glassformer.__file__)"]
    assert Path(subprocess.run(where, **show, check=True, capture_output=True).stdout).is_relative_to(site)
    command = str(python.with_name("glassformer"))
    subprocess.run([command, "train", "reverse", *TINY, "--out", "run"], **show, check=True, capture_output=True)
    server = subprocess.Popen([command, "explore", "run", "--port", "0", "--no-open"], **show, stdout=subprocess.PIPE)
    try:
        address = re.search(r"http://\S+", server.stdout.readline())[0]
        view = watched()
        assert view.open(address).get_attribute("body", "data-ready") == "yes"
        for screen in SCREENS:
            assert view.go(screen).locator("main .card").count() > 0, screen
        assert all(url.startswith(address.partition("/#")[0]) for url in view.requested)
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate()
    assert server.returncode == 0
    view.complaints.clear()  # of a server that has gone
