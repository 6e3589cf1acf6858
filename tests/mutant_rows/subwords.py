"""The faults of subwords and of where words begin that the tests of `data/` are known to catch."""

from __future__ import annotations

from mutant_runner import Mutant

TOK, SUB, FOR, WORD, CON = (
    f"tests/data/{name}.py"
    for name in (
        "test_tokenizer",
        "tokens/test_subword",
        "tokens/test_foreign_tokenizer",
        "tokens/test_whole_words",
        "test_config",
    )
)

# One row on two or three lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    Mutant("### typed by a user is a piece within a word", "data/tokens/wordpiece.py",
        'pre_tokenizers.Split("#", "isolated")', 'pre_tokenizers.Split("\\0", "isolated")', TOK),
    Mutant("a word beyond the longest is <unk>", "data/tokens/wordpiece.py",
        "pre_tokenizers.FixedLength(LONGEST_WORD)", "pre_tokenizers.FixedLength(LONGEST_WORD + 1)",
        f"{SUB}::test_a_word_without_an_end_is_no_unknown_one"),
    Mutant("wordpiece settles ties by a random hash", "data/tokens/wordpiece.py",
        "special_tokens=[*SPECIALS, *cls.alphabet()],",
        'special_tokens=[*SPECIALS, *__import__("random").sample(cls.alphabet(), 511)],',
        f"{TOK}::test_training_depends_on_the_texts_alone"),
    Mutant("a file without a byte within a word is taken", "data/tokens/wordpiece.py",
        "return [*letters, *(cls.mark + letter for", "return list(letters) or [*(cls.mark + letter for", FOR),
    Mutant("the ## is text", "data/tokens/byte_level.py",
        "token if len(token) == len(mark) else token.removeprefix(mark)", "token", TOK),
    Mutant("rare bytes are as probable as a random hash says", "data/tokens/unigram.py",
        "if score > lowest + AMONG_RARE or", "if score > lowest or", f"{TOK}::test_training_depends_on_the_texts_alone"),
    Mutant("unigram learns more than it was asked for", "data/tokens/unigram.py",
        "[: config.vocab_size]", "[:]", f"{SUB}::test_the_size_asked_for_is_the_size_got_when_the_text_allows"),
    Mutant("the improbable cut", "data/tokens/unigram.py", "*((token, -score) for", "*((token, score - 99.0) for",
        f"{SUB}::test_the_vocabulary_is_specials_then_bytes_then_what_was_learned"),
    Mutant("a hostile expression reaches the library", "data/tokens/byte_level.py",
        "        if name not in (\"model\", \"added_tokens\") and not", "        if False and not",
        f"{FOR}::test_a_file_that_would_lose_text_is_refused"),
    Mutant("a file may add settings of its own", "data/tokens/byte_level.py",
        "all(name in mine and", "all(name not in mine or", f"{FOR}::test_a_file_that_would_lose_text_is_refused"),
    Mutant("a list may be cut short", "data/tokens/byte_level.py",
        "return len(these) == len(those) and all(", "return all(", f"{FOR}::test_a_file_that_would_lose_text_is_refused"),
    Mutant("what the library fills in is not compared", "data/tokens/byte_level.py",
        "if wrong := [name for name in settings if", "if wrong := [name for name in () if",
        f"{FOR}::test_a_file_that_would_lose_text_is_refused"),
    Mutant("a vocabulary of any size", "data/tokens/byte_level.py", "if len(by_id) > MOST_ENTRIES:", "if False:",
        f"{FOR}::test_a_vocabulary_beyond_all_use_is_refused"),
    Mutant("a long text is cut behind white space", "data/tokens/cuts.py",
        "            return at\n", "            return at + 1\n", f"{SUB}::test_a_long_text_has_the_ids_that_it_has_whole"),
    Mutant("training holds every text", "data/tokens/byte_level.py",
        "(part for text in texts if utf8(text) for part in shares(text))", "(text for text in texts if utf8(text))",
        f"{SUB}::test_training_takes_a_stream_and_keeps_no_text"),
    Mutant("any model of the library is bpe", "data/tokenizer.py", "return kinds[name]", 'return "bpe"',
        f"{TOK}::test_json_holds_all_of_a_tokenizer"),
    Mutant("a subword vocabulary may lack bytes", "data/config.py",
        "if self.vocab_size < (least :=", "if self.vocab_size < 0 * (least :=", CON),
    Mutant("an unlisted character is the last one", "data/tokens/code_points.py",
        "np.full(int(self._past) + 1, UNK,", "np.full(int(self._past) + 1, len(codes) + 5,", TOK),
    Mutant("rows of characters run together", "data/tokens/code_points.py",
        "first += len(text)", "first += len(text) - 1", TOK),
    Mutant("special ids have characters", "data/tokens/code_points.py",
        "if array.size and array.min() < len(SPECIALS):", "if False:", TOK),
    Mutant("no word begins at the first id", "data/tokens/whole_words.py", "[0] * (SPACE", "[] * (SPACE", WORD),
    Mutant("white space before the first word is a word", "data/tokens/whole_words.py",
        "[0] * (SPACE.match(text) is None)", "[0]", f"{WORD}::test_words_as_one_writes_them"),
    Mutant("white space behind a special id goes with the word before it", "data/tokens/whole_words.py",
        "no_word = np.maximum.accumulate(place * parted) >= np.maximum.accumulate(place * begins)", "no_word = parted",
        f"{WORD}::test_words_as_one_writes_them"),
    Mutant("a word begins with its white space", "data/tokens/whole_words.py", "space.end() for", "space.start() for", WORD),
    Mutant("white space is ASCII", "data/tokens/whole_words.py", r"|\xe3\x80\x80", "",
        f"{WORD}::test_white_space_is_pythons"),
    Mutant("a special id goes with the word before", "data/tokens/whole_words.py",
        "parted = np.isin(np.asarray(known, np.int64), list(special))", "parted = np.zeros(len(known), bool)",
        f"{WORD}::test_words_as_one_writes_them"),
    Mutant("an unknown character ends a word", "data/tokens/whole_words.py",
        "range(len(SPECIALS)) if id != UNK}", "range(len(SPECIALS))}",
        f"{WORD}::test_words_as_one_writes_them"),
]
