"""Naughty strings as what a model is asked: prompts come back as they are, and each line has one line of answer."""

import json

import pytest

from cli.conftest import Answer
from glassformer.data.lines import MARK
from glassformer.data.tokenizer import ByteTokenizer
from glassformer.train.finished import writing
from naughty.conftest import LABELS, lines

SHORT = ("--max-new-tokens", "1", "--greedy", "--json")


def lines_of(answer: Answer) -> list[str]:
    """What was written, line by line: U+2028 and its like end none."""
    assert answer.code == 0, answer.err
    assert answer.out.endswith("\n")
    return answer.out.split("\n")[:-1]


def test_every_byte_is_scored(texts, writer_run, run, tmp_path):
    """Of a text in a file its bytes; of documents also the end of each, and the beginning of all but the first."""
    path = lines(tmp_path / "a.txt", texts)
    size = len(path.read_bytes()) - len(MARK)
    (figures,) = lines_of(run("evaluate", str(writer_run), "--data.text", str(path), "--json"))
    assert json.loads(figures)["n"] == size + 1
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": each}) + "\n" for each in texts), "utf-8")
    (figures,) = lines_of(run("evaluate", str(writer_run), "--data.text", str(path), "--json"))
    assert json.loads(figures)["n"] == size - len(texts) + 2 * len(texts) - 1


def test_prompts_of_a_file_come_back_in_order(strings, writer_run, run, tmp_path):
    def requests(texts: list[str], *words: str) -> Answer:
        return run("generate", str(writer_run), "--file", str(lines(tmp_path / "prompts", texts)), *words)

    found = [json.loads(each) for each in lines_of(requests(strings, *SHORT))]
    assert [each["prompt"] for each in found] == strings
    whole = [each["prompt"] + each["text"] for each in found[::5]]
    plain = requests(strings[::5], *SHORT[:-1])
    assert plain.out == "---\n".join(each if each.endswith("\n") else f"{each}\n" for each in whole)
    assert "the vocabulary lacks" not in plain.err


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_prompt_is_taken_from_an_argument_and_from_standard_input(step, strings, writer_run, run, monkeypatch):
    made: list[writing.Writer] = []

    def once(*given: object, maker: type[writing.Writer] = writing.Writer) -> writing.Writer:
        if not made:
            made.append(maker(*given))
        return made[0]

    monkeypatch.setattr(writing, "Writer", once)
    for each in [*strings[::step], *(each for each in strings if each != each.strip())]:
        by_input = run("generate", str(writer_run), *SHORT, stdin=MARK + each.encode() + b"\n")
        by_argument = run("generate", str(writer_run), f"--prompt={each}", *SHORT)
        assert [json.loads(line)["prompt"] for line in lines_of(by_input)] == [each]
        assert by_argument.out == by_input.out


def test_each_line_is_translated_to_one(strings, answering_run, run):
    def translated(*words: str) -> list[str]:
        return lines_of(run("translate", str(answering_run), *words, stdin=MARK + "\n".join(strings).encode()))

    tokens = ByteTokenizer()
    found = [json.loads(each) for each in translated("--json")]
    assert [each["line"] for each in found] == [*range(1, len(strings) + 1)]
    for each, answer in zip(strings, found, strict=True):
        assert len(answer["answers"]) == bool(each.strip())
        if each.strip():
            assert answer["source_tokens"] == tokens.tokens(tokens.encode(each))
    assert translated() == [each["answers"][0]["text"] if each["answers"] else "" for each in found]


def test_each_line_has_one_label(strings, labelling_run, run):
    def classified(*words: str) -> list[str]:
        return lines_of(run("classify", str(labelling_run), *words, stdin=MARK + "\n".join(strings).encode()))

    found = [json.loads(each) for each in classified("--json")]
    assert [each is None for each in found] == [not each.strip() for each in strings]
    assert {*found[1]["probabilities"]} == {*LABELS}
    plain = classified()
    assert plain == ["" if each is None else each["label"] for each in found]
    assert {*filter(None, plain)} <= {*LABELS}


def test_every_pair_and_every_label_is_scored(texts, answering_run, labelling_run, run, tmp_path):
    whole = [each for each in texts if "\t" not in each]
    path = lines(tmp_path / "pairs.tsv", [f"{each}\t{each}" for each in whole])
    report = json.loads(run("evaluate", str(answering_run), "--data.test", str(path), "--json").out)
    assert report["n"] == len(whole)
    report = json.loads(run("evaluate", str(labelling_run), "--json").out)
    assert report["n"] == len(whole)
    assert {*report["labels"]} == {*LABELS}
    path = lines(tmp_path / "rows.tsv", [f"a text\t{whole[0]}"])
    refused = run("evaluate", str(labelling_run), "--data.test", str(path))
    assert refused.code == 2
    assert f"rows.tsv:1: the label {whole[0]!r} does not occur in the training text" in refused.err
