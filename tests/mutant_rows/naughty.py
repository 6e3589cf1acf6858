"""Faults that change or lose a naughty string on its way in, or let it out as markup."""

from __future__ import annotations

from mutant_runner import Mutant

ASKED, LEARNED, SERVED, SEEN, WORDS, WISHED = (
    f"tests/naughty/test_{name}.py" for name in ("answers", "training", "serving", "looking", "arguments", "wishes")
)
LONG = "tests/data/running/test_long_line.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("a prompt from standard input loses its white space", "cli/generate.py",
        'data.removesuffix(b"\\n").removesuffix(b"\\r")', "data.strip()",
        f"{ASKED}::test_a_prompt_is_taken_from_an_argument_and_from_standard_input"),
    Mutant("a file of prompts has the line ends of Unicode", "cli/generate.py",
        "return read_lines(file)", 'return "\\n".join(read_lines(file)).splitlines()',
        f"{ASKED}::test_prompts_of_a_file_come_back_in_order"),
    Mutant("a blank line has no answer", "cli/translate.py",
        "            while waiting.popleft():\n                yield None\n", "            while waiting.popleft():\n                pass\n", f"{ASKED}::test_each_line_is_translated_to_one"),
    Mutant("the value of a flag ends at its last =", "cli/arguments.py",
        'word.removeprefix("--").partition("=")', 'word.removeprefix("--").rpartition("=")',
        f"{WORDS}::test_a_flag_takes_any_string_as_it_is"),
    Mutant("a quote in a recipe ends its text", "train/recipe.py",
        'json.dumps(value, ensure_ascii=False).replace("\\x7f", "\\\\u007f")', "f'\"{value}\"'",
        f"{WORDS}::test_a_recipe_keeps_any_name_of_a_file"),
    Mutant("a text in JSON loses its white space", "data/running/text.py",
        'yield place, text.replace("\\r\\n", "\\n")', "yield place, text.strip()",
        f"{LEARNED}::test_json_lines_are_learned_however_they_are_escaped"),
    Mutant("a side of a pair loses its white space", "data/pairs.py",
        "rows.append((cells[0], cells[1]))", "rows.append((cells[0].strip(), cells[1].strip()))",
        f"{LEARNED}::test_pairs_are_read_as_they_are_or_refused_with_their_line"),
    Mutant("a labelled text loses its white space", "data/labelled.py",
        "pairs.append(Pair(row.text, row.label))", "pairs.append(Pair(row.text.strip(), row.label))",
        f"{LEARNED}::test_labelled_texts_are_read_as_they_are_or_refused_with_their_line"),
    Mutant("serve gives a prompt back without its white space", "serve/texts.py",
        "return Echoed(prompt, ", "return Echoed(prompt.strip(), ", f"{SERVED}::test_prompts_come_back_before_their_text"),
    Mutant("serve takes digits of any script for the id of a token", "serve/fields.py",
        "id.isascii() and id.isdecimal() and len(id) < 10", "id.isdecimal() and len(id) < 10",
        f"{SERVED}::test_a_string_that_is_no_value_is_refused_by_the_name_of_its_field"),
    Mutant("the explorer reads a text up to its first tag", "lens/server/requests.py",
        'given.get("text", ids)', 'given["text"].split("<")[0] or "a" if "text" in given else ids',
        f"{SEEN}::test_the_explorer_shows_a_string_as_the_model_reads_it"),
    Mutant("a page in a file holds texts as they are", "lens/page/bundle.py",
        "told.append(_packed(header))", "told.append(header.decode())",
        f"{SEEN}::test_a_page_in_a_file_holds_nothing_of_a_string_but_packed"),
    Mutant("a banned text may be completed where it was begun", "decode/choose/words.py",
        "ends = ((word, n) for word in words for n in range(len(word)) if tail.endswith(word[:n]))",
        "ends = ((word, 0) for word in words)", f"{WISHED}::test_a_text_never_holds_a_string"),
    Mutant("the longest line has no limit of memory", "data/lines.py",
        "file.readline(LONGEST_LINE + 2)", "file.readline()",
        f"{LONG}::test_a_line_that_is_read_whole_is_refused_by_its_number"),
]
