"""`glassformer data list | show NAME | fetch NAME`: public data sets by name."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from textwrap import fill, indent

from glassformer.base.errors import ConfigError, ResourceError
from glassformer.base.registry import suggestion
from glassformer.cli.arguments import Arguments
from glassformer.data.catalogue import HERE, MISSING, DataSet, Measured, catalogue, data_folder, data_set, fetch


def run(arguments: Arguments) -> int:
    """List all data sets, or show or fetch one."""
    folder = data_folder(arguments.options.get("data-dir"))
    for_programs = "json" in arguments.options
    if arguments.target == "list":
        if arguments.second is not None:
            raise ConfigError(
                f"`glassformer data list` takes no name; got {arguments.second!r}. Remove it, or use show."
            )
        return listed(folder, for_programs)
    verbs = {"show": shown, "fetch": fetched}
    if arguments.target not in verbs:
        raise ConfigError(
            f"`glassformer data` cannot do {arguments.target!r}. {suggestion(str(arguments.target), (*verbs, 'list'))}"
        )
    if arguments.second is None:
        raise ConfigError(
            f"`glassformer data {arguments.target}` needs the name of a data set: {', '.join(catalogue())}."
        )
    return verbs[arguments.target](data_set(arguments.second), folder, for_programs)


def listed(folder: Path, for_programs: bool) -> int:
    """Print a line for each data set: its size in bytes, how many of its files are present, and its title."""
    sets = list(catalogue().values())
    if for_programs:
        print(json.dumps({"folder": str(folder), "sets": [as_json(each, folder) for each in sets]}))
        return 0
    print(f"In {folder} (--data-dir or GLASSFORMER_DATA name another):")
    for each in sets:
        here = each.states(folder).count(HERE)
        print(f"{each.name:16}{each.size:>12,} bytes  {here}/{len(each.files)} files here  {each.title}")
    return 0


def shown(each: DataSet, folder: Path, for_programs: bool) -> int:
    """Print everything the catalogue says about a data set, and what was measured on it."""
    if for_programs:
        print(json.dumps(as_json(each, folder)))
        return 0
    place = each.folder(folder)
    print(f"{each.title}\nLicence: {each.licence}\nCitation: {each.citation}\nFiles in {place}:")
    for file, state in zip(each.files, each.states(folder), strict=True):
        print(f"  {file.name}  {file.size:,} bytes  {state}\n    {file.address}\n    SHA-256 {file.sha256}")
    print(recipes(each, folder))
    return 0


def fetched(each: DataSet, folder: Path, for_programs: bool) -> int:
    """Fetch the missing files. A file whose bytes differ from the catalogue's is the user's and is left alone."""
    place = each.folder(folder)
    states = each.states(folder)
    for file, state in zip(each.files, states, strict=True):
        if state not in (HERE, MISSING):
            path = next(each for each in (place / file.name, place / f"{file.name}.gz") if each.exists())
            fault = "its content differs from the catalogue's" if path.is_file() else "it is not a file"
            raise ConfigError(
                f"{path} exists, but {fault}. Move it away to fetch the catalogue's file, or choose another folder "
                "with --data-dir."
            )
    wanted = [file for file, state in zip(each.files, states, strict=True) if state == MISSING]
    check_room(folder, sum(file.size for file in wanted))
    for file in wanted:
        shows = sys.stderr.isatty() and not for_programs
        end = "\r" if shows else ""
        for done in fetch(file, place):
            if shows:
                print(f"\r{file.name}: {done:,} of {file.size:,} bytes", end="", file=sys.stderr, flush=True)
        print(f"{end}{file.name}: {file.size:,} bytes, SHA-256 as it should be", file=sys.stderr)
    if for_programs:
        print(json.dumps({**as_json(each, folder), "fetched": [file.name for file in wanted]}))
        return 0
    print(f"{each.name}: all {len(each.files)} files are in {place}, {len(wanted)} of them new.")
    print(recipes(each, folder))
    return 0


def check_room(folder: Path, needed: int) -> None:
    """Refuse, before the download, a folder that cannot be created and files that do not fit on the disk."""
    there = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    if not there.is_dir():
        raise ConfigError(
            f"Data sets are stored in folders, but {there} is a file. Choose another folder with --data-dir."
        )
    if (free := shutil.disk_usage(there).free) < needed:
        raise ResourceError(
            f"The files need {needed:,} bytes, but {there} has {free:,} bytes free. Free some space, or choose "
            "another folder with --data-dir."
        )


def as_json(each: DataSet, folder: Path) -> dict[str, object]:
    """Return the entry of a data set for JSON."""
    files = [
        {"name": file.name, "address": file.address, "size": file.size, "sha256": file.sha256, "state": state}
        for file, state in zip(each.files, each.states(folder), strict=True)
    ]
    return {
        "name": each.name,
        "title": each.title,
        "licence": each.licence,
        "citation": each.citation,
        "folder": str(each.folder(folder)),
        "recipes": [
            {"name": recipe.name, "expected": recipe.expected, "steps": steps(recipe, each, folder)}
            for recipe in each.recipes
        ],
        "files": files,
    }


def recipes(each: DataSet, folder: Path) -> str:
    """Return what was measured on a data set: for each recipe its name, the result to expect and the commands."""
    parts = ["What was measured, and the commands for it:"]
    for recipe in each.recipes:
        commands = indent("\n".join(steps(recipe, each, folder)), "  ")
        parts.append(f"{recipe.name}\n{fill(f'Expected: {recipe.expected}', 100)}\n{commands}")
    return "\n\n".join(parts)


def steps(recipe: Measured, each: DataSet, folder: Path) -> list[str]:
    """Return the commands of a recipe. A file that is present only as .gz is named with that ending."""
    place = each.folder(folder)
    lines = list(recipe.steps)
    for file in each.files:
        if not (place / file.name).is_file() and (place / f"{file.name}.gz").is_file():
            named = re.compile(rf"(?<={{folder}}/){re.escape(file.name)}(?=\s|$)")
            lines = [named.sub(f"{file.name}.gz", line) for line in lines]
    return [line.replace("{folder}", shlex.quote(str(place))) for line in lines]
