"""The faults of the catalogue of data sets and of fetching that the tests are known to catch."""

from __future__ import annotations

from mutant_runner import Mutant

CAT, FET, CLI = "tests/data/public/test_catalogue.py", "tests/data/public/test_fetch.py", "tests/cli/test_data.py"
REC = "tests/data/public/test_recipes.py"
SETTINGS = f"{REC}::test_its_settings_are_those_of_the_row"
REWRITTEN = f"{REC}::test_its_files_are_those_of_the_benchmark"
FIGURES = f"{REC}::test_its_figures_are_the_published_ones"

# One row on two or three lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    Mutant("a file of the right size is the right one", "data/public/catalogue.py",
        "return seen == self.size and digest.hexdigest() == self.sha256", "return seen == self.size", CAT),
    Mutant("a packed file is not seen", "data/public/catalogue.py", '("", _plain), (".gz", _unpacked)', '("", _plain),', CAT),
    Mutant("a file may lie outside its set's folder", "data/public/catalogue.py",
        'if Path(self.name).name != self.name or self.name in ("", ".", ".."):', "if False:", FET),
    Mutant("a relative XDG_DATA_HOME is taken", "data/public/catalogue.py", "if Path(home).is_absolute() else", "if home else", CAT),
    Mutant("--data-dir is not asked", "data/public/catalogue.py", "asked if asked is not None else", "", CAT),
    Mutant("any address is fetched", "data/public/fetch.py", 'if parts.scheme == "https" or', "if parts.scheme or", FET),
    Mutant("a redirect may lead anywhere", "data/public/fetch.py", "            check_address(newurl)\n", "            pass\n",
        f"{FET}::test_a_server_that_sends_something_else"),
    Mutant("a host is this machine by how its name begins", "data/public/fetch.py",
        'return host == "localhost" or', 'return host.startswith("127.") or host == "localhost" or', FET),
    Mutant("wrong bytes are kept", "data/public/fetch.py", "if found.hexdigest() != file.sha256:", "if False:", FET),
    Mutant("a wrong part is gone on with for ever", "data/public/fetch.py", "        part.unlink(missing_ok=True)\n        raise", "        raise", FET),
    Mutant("an interrupted file begins anew", "data/public/fetch.py",
        '{"Range": f"bytes={have}-"} if have else {}', "{}", FET),
    Mutant("bytes from the first are put behind a part", "data/public/fetch.py", "            have = _emptied(out)\n        announced", "            have += 0\n        announced", FET),
    Mutant("a rest that begins elsewhere is taken", "data/public/fetch.py", "if not re.fullmatch(", "if False and not re.fullmatch(", FET),
    Mutant("what is announced is not compared", "data/public/fetch.py", "have + int(announced) != file.size", "False", FET),
    Mutant("a server may send without end", "data/public/fetch.py",
        "            if have > file.size:\n                _emptied(out)", "            if False:\n                _emptied(out)", FET),
    Mutant("a cut connection is the end", "data/public/fetch.py", "TRIES = 3", "TRIES = 0", FET),
    Mutant("a link is written through", "data/public/fetch.py",
        "if os.path.lexists(part) and (part.is_symlink() or not part.is_file()):", "if False:", FET),
    Mutant("a full disk is a traceback", "data/public/fetch.py", "if error.errno not in FULL:", "if True:", FET),
    Mutant("only some failures of the network are tried again", "data/public/fetch.py",
        "except (OSError, HTTPException) as error:", "except (ConnectionError, TimeoutError, HTTPException) as error:",
        f"{FET}::test_a_network_that_fails_is_tried_again"),
    Mutant("a full disk is a lost connection", "data/public/fetch.py",
        "            out.write(block)\n            out.flush()", "            with _network(file):\n                out.write(block)\n                out.flush()",
        f"{FET}::test_a_disk_that_is_full_while_bytes_come_is_said"),
    Mutant("who is second finds nothing to rename", "data/public/fetch.py",
        "if file.state(folder) != HERE:", "if True:", f"{FET}::test_two_may_fetch_the_same_file"),
    Mutant("a part that vanished is a file", "data/public/fetch.py",
        "if file.state(folder) != HERE:", "if False:", f"{FET}::test_a_part_that_is_taken_away_is_said"),
    Mutant("a folder is missing", "data/public/fetch.py",
        "if path.exists() and not path.is_file():", "if False:", f"{FET}::test_a_folder_of_that_name_is_refused_at_the_start"),
    Mutant("a file that fails leaves an empty part", "data/public/fetch.py", "part.stat().st_size == 0", "part.stat().st_size < 0", FET),
    Mutant("what is there is fetched again", "cli/data.py", "strict=True) if state == MISSING]", "strict=True)]", CLI),
    Mutant("a file of the user's is replaced", "cli/data.py", "if state not in (HERE, MISSING):", "if False:", CLI),
    Mutant("every verb takes a second word", "cli/arguments.py", "and verb.second is not None and", "and", CLI),
    Mutant("only the first recipe is told", "cli/data.py", "    for recipe in each.recipes:\n", "    for recipe in each.recipes[:1]:\n", CLI),
    Mutant("what to expect is not told", "cli/data.py", "{fill(f'Expected: {recipe.expected}', 100)}\\n", "", CLI),
    Mutant("a packed file is named as if it were plain", "cli/data.py", 'named.sub(f"{file.name}.gz", line)', "line", CLI),
    Mutant("SCAN's best checkpoint is chosen on test", "data/public/recipes.toml",
        '"tail -n 500 files/scan/all.tsv > files/scan/dev.tsv"', '"cp files/scan/test.tsv files/scan/dev.tsv"', REWRITTEN),
    Mutant("lines of dev are trained on, too", "data/public/recipes.toml",
        '"head -n -500 files/trec/all.tsv > files/trec/train.tsv"', '"cp files/trec/all.tsv files/trec/train.tsv"', REWRITTEN),
    Mutant("dev has words that train has", "data/public/recipes.toml", "!($1 in known)", "1", REWRITTEN),
    Mutant("the lines of a word stand apart", "data/public/recipes.toml",
        "lines[word] = lines[word] word", 'printf "%s", word "\\t" $2 "\\n"; lines[word] = "" word', REWRITTEN),
    Mutant("the end of a line is no word", "data/public/recipes.toml",
        "s/ *$/ <eol>/; s/^ //' > files/wikitext-2-lines/$name.txt\ndone\'\'\',\n    \'\'\'\nglassformer train lm --out runs/wikitext-2-bpe",
        "s/ *$//; s/^ //' > files/wikitext-2-lines/$name.txt\ndone\'\'\',\n    \'\'\'\nglassformer train lm --out runs/wikitext-2-bpe", REWRITTEN),
    Mutant("SCAN drops as inflection does", "data/public/recipes.toml",
        "--model.dropout 0 --optimizer.weight-decay 0 \\\n    --training.label-smoothing 0 --training.steps 8000",
        "--optimizer.weight-decay 0 \\\n    --training.label-smoothing 0 --training.steps 8000", SETTINGS),
    Mutant("French is trained for as long as German", "data/public/recipes.toml", "--training.steps 10400", "--training.steps 6000", SETTINGS),
    Mutant("reviews start from fresh weights", "data/public/recipes.toml", " --training.start-from runs/wikitext-2-masked", "", SETTINGS),
    Mutant("a figure is another language's", "data/public/recipes.toml",
        "test split of Turkish: 97.47 % (97.20–97.70)", "test split of Turkish: 94.10 % (93.20–94.90)", FIGURES),
    Mutant("seconds are another recipe's", "data/public/recipes.toml", "Training takes 637 seconds", "Training takes 566 seconds", FIGURES),
    Mutant("a spread is told too narrow", "data/public/recipes.toml", "(79.36–80.62)", "(79.36–80.22)", FIGURES),
    Mutant("one seed is told as more", "data/public/recipes.toml", "39.87, one seed (1)", "39.87", FIGURES),
    Mutant("dev is scored as if it were test", "data/public/recipes.toml",
        '"glassformer evaluate runs/scan"', '"glassformer evaluate runs/scan --split dev"', f"{REC}::test_it_is_scored_as_the_row_is"),
    Mutant("two recipes share a run", "data/public/recipes.toml", "--out runs/turkish", "--out runs/german", f"{REC}::test_runs_have_folders_of_their_own"),
    Mutant("a folder with a space is two words", "cli/data.py", "shlex.quote(str(place))", "str(place)", CLI),
]
