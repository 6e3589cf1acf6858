"""The surface of the command line as text. Run it to write the golden file after a change that is meant.

python tests/cli/surface.py > tests/cli/surface.txt
"""

from collections.abc import Iterator

from glassformer.cli.arguments import setting_lines
from glassformer.cli.verbs import COMMON, VERBS
from glassformer.train.recipe import Recipe, known_recipes


def surface() -> str:
    """Every verb with its target and every flag with what it takes, a line each; then the named recipes."""
    return "".join(f"{line}\n" for line in lines())


def lines() -> Iterator[str]:
    yield "glassformer --help"
    yield "glassformer --version"
    for name, verb in VERBS.items():
        yield " ".join(filter(None, ("glassformer", name, verb.target, verb.second)))
        for option in (*verb.options, *COMMON):
            yield f"glassformer {name} --{option.name} {option.value or ''}".rstrip()
        for section in verb.sections:
            for flag, _ in setting_lines(section, Recipe("NAME"), verb.taken):
                yield f"glassformer {name} {flag}"
    for recipe in known_recipes():
        yield f"recipe {recipe}"


if __name__ == "__main__":
    print(surface(), end="")
