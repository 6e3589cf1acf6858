"""Our own C++, compiled on this machine for its processor when first needed, and kept in the cache.

    <cache folder>/native/KEY-CONTENT.so    KEY: a hash of the sources, the flags, the compiler and the processor;
                                            CONTENT: a hash of the file itself, as a damaged one would end the process

It is loaded with `ctypes` and knows nothing of torch: functions get addresses and sizes. So compiling takes seconds.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path

from glassformer.base.cache_folder import VARIABLE, cache_folder, unwritable
from glassformer.base.errors import ConfigError, ResourceError

LOG = logging.getLogger(__name__)
NATIVE = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
"""For this processor: on ARM, clang knows it by another name."""
FLAGS = (
    *("-std=c++17", "-O3", NATIVE, "-shared", "-fPIC"),
    *("-ffp-contract=off", "-fno-trapping-math"),
)
"""Without fused additions, so that a number does not depend on how the compiler arranged its loop."""
COMPILERS = ("g++", "clang++")
HOW = "on Debian or Ubuntu: apt-get install g++; on macOS: xcode-select --install"
MACS = "g++-15 after brew install gcc, since Apple's g++ is its clang"
WANTED = "as the environment variable CXX names it, or g++ or clang++"


def compiler() -> list[str] | None:
    """The command of a C++ compiler; None if there is none.

    It is that in the environment variable CXX, which may have arguments as in make, else g++ or clang++.
    """
    named = os.environ.get("CXX")
    try:
        commands = [shlex.split(named)] if named else [[each] for each in COMPILERS]
    except ValueError:  # a quotation without end
        return None
    found = ((shutil.which(each[0]), each[1:]) for each in commands if each)
    return next(([path, *arguments] for path, arguments in found if path), None)


def why_not(source: Path) -> str:
    """Why a C++ file cannot be used here, in one line; "" if it can."""
    if compiler() is None:
        return f"no C++ compiler was found, {WANTED}{asked_for()} ({HOW})"
    try:
        library(source)
    except (ConfigError, ResourceError) as error:
        return f"our C++ cannot be used: {' '.join(str(error).split()).rstrip('.')}"
    return ""


def asked_for() -> str:
    """What a message adds if CXX names a compiler."""
    return f", and CXX names {os.environ['CXX']!r}, which cannot be run" if os.environ.get("CXX") else ""


@cache
def library(source: Path) -> ctypes.CDLL:
    """Compile a C++ file, unless the cache has it compiled, and load it.

    Errors: `ConfigError` without a compiler, or if it fails; `ConfigError` or `ResourceError` if the cache cannot be
    used.
    """
    if (command := compiler()) is None:
        raise ConfigError(f"A C++ compiler is needed, {WANTED}; none was found{asked_for()}. Install one ({HOW}).")
    folder, key = own_folder(), key_of(source, command)
    if (compiled := whole(folder, key)) is None:
        LOG.info(
            f"Compiling {source.name}, our C++, for this processor: some seconds, and only once, as it is kept in "
            f"{folder}."
        )
        compiled = compile_to(folder, key, source, command)
    try:
        return ctypes.CDLL(str(compiled))
    except OSError as error:
        raise ResourceError(
            f"{compiled} cannot be loaded: {error}. Set {VARIABLE} to a folder whose files may be executed, or the "
            "environment variable CXX to another compiler, for example g++."
        ) from error


def whole(folder: Path, key: str) -> Path | None:
    """The compiled file with this key; None if there is none, or only damaged ones, which are removed."""
    for path in sorted(folder.glob(f"{key}-*.so")):
        with suppress(OSError):
            if path.stem == f"{key}-{digest(path)}":
                return path
            path.unlink()
    return None


def digest(path: Path) -> str:
    """A hash of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def own_folder() -> Path:
    """The folder of compiled files, to which nobody else may write: what lies there is run.

    Errors: `ResourceError` if it belongs to another user; as `unwritable` if it cannot be made.
    """
    folder = cache_folder() / "native"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if hasattr(os, "getuid"):
            if folder.stat().st_uid != os.getuid():
                raise ResourceError(
                    f"{folder} must belong to the user who runs this, as code in it is run. Set {VARIABLE} to a folder "
                    "of your own."
                )
            folder.chmod(0o700)
    except OSError as error:
        raise unwritable(folder, error) from error
    return folder


def key_of(source: Path, command: list[str]) -> str:
    """What the compiled file's name begins with; another source or header, compiler, or processor gives another."""
    version = output_of([*command, "--version"]).stdout
    parts = [
        *openmp(version),
        *(each.read_text(encoding="utf-8") for each in (source, *sorted(source.parent.glob("*.h")))),
        *FLAGS,
        *command,
        version,
        platform.machine(),
        processor(),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def openmp(version: str) -> tuple[str, ...]:
    """The flags with which a compiler of this `version` makes threads.

    Apple's clang reads OpenMP's pragmas only where its front end gets the flag, and has no runtime. Torch brings one,
    and a second one in the same process would end it; so ours is torch's.
    """
    torch = importlib.util.find_spec("torch")
    folders = [Path(each) / "lib" for each in (torch.submodule_search_locations or [] if torch else [])]
    runtimes = [each / "libomp.dylib" for each in folders if (each / "libomp.dylib").exists()]
    if sys.platform != "darwin" or "clang" not in version or not runtimes:
        return ("-fopenmp",)
    return ("-Xclang", "-fopenmp", str(runtimes[0]), f"-Wl,-rpath,{runtimes[0].parent}")


def output_of(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a compiler. Errors: `ConfigError` if it cannot be started."""
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise ConfigError(
            f"A C++ compiler is needed, {WANTED}; {command[0]} cannot be started: {error}. Set CXX to another one, for "
            "example g++."
        ) from error


def processor() -> str:
    """What tells processors with different instructions apart; a home folder may be shared by many machines."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
    return platform.processor()


def compile_to(folder: Path, key: str, source: Path, command: list[str]) -> Path:
    """Write the compiled file under another name, and rename it once it is complete and on the disk."""
    new = folder / f"new-{uuid.uuid4().hex}.so"
    try:
        flags = [*FLAGS, *openmp(output_of([*command, "--version"]).stdout)]
        ran = output_of([*command, *flags, str(source), "-o", str(new)])
        if ran.returncode or not new.exists():
            raise ConfigError(
                f"The C++ compiler must take {source.name} and the flags {' '.join(flags)}; {shlex.join(command)} "
                "answered: "
                f"{ran.stderr.strip()[-600:] or f'exit status {ran.returncode}'}. Name another compiler in the "
                f"environment variable CXX, for example {'g++' if sys.platform != 'darwin' else MACS}."
            )
        with new.open("rb+") as file:
            os.fsync(file.fileno())
        return new.replace(folder / f"{key}-{digest(new)}.so")
    except OSError as error:
        raise unwritable(folder, error) from error
    finally:
        with suppress(OSError):  # it has been renamed, or never was
            new.unlink()
