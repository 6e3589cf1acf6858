"""Our own C++: compiled once, again where it would differ, and told when it cannot be."""

import ctypes
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys

import pytest

from fresh import printed
from glassformer.base.cache_folder import cache_folder
from glassformer.base.errors import ConfigError, ResourceError
from glassformer.fast import compiler as native

compiled = pytest.mark.skipif(native.compiler() is None, reason="no C++ compiler is here")
IN_ANOTHER_PROCESS = """
import pathlib
from glassformer.fast.compiler import library
print(library(pathlib.Path({!r})).seven())
"""
SEVEN = 'extern "C" int seven() { return 7; }\n'


@pytest.fixture(autouse=True)
def forgetful(tmp_path, monkeypatch):
    """What one test has compiled or loaded is not there for the next."""
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "cache"))
    native.library.cache_clear()
    yield
    native.library.cache_clear()


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "seven.cpp"
    path.write_text(SEVEN)
    return path


def kept():
    return sorted((cache_folder() / "native").iterdir())


@compiled
def test_a_file_is_compiled_once(source, monkeypatch):
    assert native.library(source).seven() == 7
    (file,) = kept()
    native.library.cache_clear()
    monkeypatch.setattr(native, "compile_to", None)
    assert native.library(source).seven() == 7
    assert kept() == [file]


@compiled
def test_the_user_is_told_when_a_file_is_compiled_and_only_then(source, caplog):
    caplog.set_level("INFO", "glassformer")
    native.library(source)
    native.library.cache_clear()
    native.library(source)
    (message,) = caplog.messages
    assert message.startswith("Compiling seven.cpp, our C++, for this processor: ")
    assert message.endswith(f"kept in {cache_folder() / 'native'}.")


@compiled
@pytest.mark.parametrize("damaged", [lambda data: data[:3000], lambda data: b"no library"], ids=["cut", "other"])
def test_what_was_damaged_is_compiled_again(source, damaged):
    native.library(source)
    (file,) = kept()
    whole = file.read_bytes()
    file.unlink()  # a process that has it loaded keeps what it had
    file.write_bytes(damaged(whole))
    assert printed("-c", IN_ANOTHER_PROCESS.format(str(source))) == "7\n"
    (again,) = kept()
    assert again.read_bytes() == whole or again.name != file.name


@compiled
@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owners here")
def test_nobody_else_may_write_where_code_lies(source, monkeypatch):
    folder = cache_folder() / "native"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert native.library(source).seven() == 7
    assert folder.stat().st_mode & 0o777 == 0o700
    native.library.cache_clear()
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    with pytest.raises(ResourceError, match=r"native must belong to the user who runs this.*Set GLASSFORMER_CACHE"):
        native.library(source)


@compiled
def test_another_source_compiler_or_processor_gives_another_name(source, monkeypatch):
    command = native.compiler()
    names = [native.key_of(source, command)]
    monkeypatch.setattr(native, "processor", lambda: "another")
    names.append(native.key_of(source, command))
    monkeypatch.setattr(native, "FLAGS", (*native.FLAGS, "-g"))
    names.append(native.key_of(source, command))
    other = source.with_name("compiler")
    other.write_text("#!/bin/sh\necho 'another 1.0'\n")
    other.chmod(0o755)
    names.append(native.key_of(source, [str(other)]))
    source.write_text(SEVEN + "// more\n")
    names.append(native.key_of(source, command))
    source.with_name("six.h").write_text("// what it may include\n")
    names.append(native.key_of(source, command))
    assert len(set(names)) == len(names)


@compiled
def test_what_the_compiler_does_not_take_is_told_and_leaves_nothing(source):
    source.write_text("int;;; nonsense")
    with pytest.raises(ConfigError, match=r"(?s)must take seven\.cpp and the flags -std.*nonsense.*Name another"):
        native.library(source)
    assert kept() == []


def test_without_a_compiler(source, monkeypatch):
    monkeypatch.setenv("PATH", str(source.parent))
    monkeypatch.delenv("CXX", raising=False)
    assert native.compiler() is None
    with pytest.raises(ConfigError, match=r"A C\+\+ compiler is needed.*none was found\. Install one"):
        native.library(source)
    assert "apt-get install g++; on macOS: xcode-select --install" in native.why_not(source)


def test_the_environment_names_the_compiler(source, monkeypatch):
    own = source.with_name("own")
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("CXX", str(own))
    assert native.compiler() == [str(own)]
    monkeypatch.setenv("CXX", f"{own} -m64 '-D A=1'")
    assert native.compiler() == [str(own), "-m64", "-D A=1"]
    for nothing in ("'", " "):
        monkeypatch.setenv("CXX", nothing)
        assert native.compiler() is None
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert native.compiler() is None, "what was asked for is not replaced by another"
    with pytest.raises(ConfigError, match=r"none was found, and CXX names 'no-such-compiler', which cannot be run"):
        native.library(source)


APPLES = """#!{python}
import subprocess, sys
if "--version" in sys.argv:
    sys.exit(print("Apple clang version 15.0.0"))
if sys.argv[sys.argv.index("-fopenmp") - 1] != "-Xclang":
    sys.exit("clang: error: unsupported option '-fopenmp'")
ours = [each for each in sys.argv[1:] if each != "-Xclang" and "libomp" not in each and not each.startswith("-Wl")]
sys.exit(subprocess.run(["g++", *ours]).returncode)
"""


@pytest.fixture
def apples_clang(source, monkeypatch):
    """The compiler is one that refuses -fopenmp alone, on a platform where torch brings a runtime of OpenMP."""
    own, torch = source.with_name("clang++"), source.with_name("torch")
    own.write_text(APPLES.format(python=sys.executable))
    own.chmod(0o755)
    (torch / "lib").mkdir(parents=True)
    spec = importlib.machinery.ModuleSpec("torch", None, is_package=True)
    spec.submodule_search_locations = [str(torch)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("CXX", str(own))
    return torch / "lib" / "libomp.dylib"


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ compiles in place of Apple's clang")
def test_apples_clang_makes_threads_with_the_runtime_that_torch_brings(source, apples_clang):
    apples_clang.write_bytes(b"")
    folder = apples_clang.parent
    assert native.openmp("Apple clang") == ("-Xclang", "-fopenmp", str(apples_clang), f"-Wl,-rpath,{folder}")
    assert native.openmp("g++-15 (Homebrew GCC)") == ("-fopenmp",)
    assert native.library(source).seven() == 7
    assert native.why_not(source) == ""


def test_a_compiler_that_does_not_take_ours_is_told_in_one_line(source, apples_clang):
    message = native.why_not(source)
    assert "\n" not in message
    assert message.startswith("our C++ cannot be used: The C++ compiler must take seven.cpp and the flags -std=c++17")
    assert "unsupported option '-fopenmp'" in message
    assert "brew install gcc" in message


@pytest.mark.parametrize(("script", "match"), [
    ("no script", "cannot be started: .*Set CXX to another"),
    ("#!/bin/sh\n", "must take .*own answered: exit status 0"),
    ("#!/bin/sh\nprintf '\\377' >&2; exit 3\n", "must take .*own answered: \ufffd"),
], ids=["not a program", "writes nothing", "speaks no UTF-8"])  # fmt: skip
def test_what_is_no_compiler(source, monkeypatch, script, match):
    own = source.with_name("own")
    own.write_text(script)
    own.chmod(0o755)
    monkeypatch.setenv("CXX", str(own))
    with pytest.raises(ConfigError, match=match):
        native.library(source)


@compiled
def test_a_cache_that_cannot_be_written(source, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GLASSFORMER_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match=r"cannot be written: .*Check who.*set GLASSFORMER_CACHE to a folder"):
        native.library(source)


@compiled
def test_a_cache_whose_files_cannot_be_loaded(source, monkeypatch):
    def refuse(path: str) -> ctypes.CDLL:
        raise OSError("failed to map segment from shared object")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with pytest.raises(ResourceError, match=r"cannot be loaded: failed to map.*whose files may be executed"):
        native.library(source)


@compiled
def test_processes_that_compile_at_once_disturb_no_one(source):
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS.format(str(source))]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [each.communicate(timeout=60)[0].strip() for each in running] == ["7"] * 3
    assert len(kept()) == 1
