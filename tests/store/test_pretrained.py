"""A folder of Hugging Face becomes a model of ours that computes the same, or is refused with the reason."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from glassformer.base.errors import GlassformerError
from glassformer.data.tokenizer import tokenizer_from_json
from glassformer.data.tokens.decoding import begins_in
from glassformer.data.tokens.vocabulary import BOS, EOS, PAD, SPECIALS, UNK
from glassformer.decode.filters import Context, one_end
from glassformer.store.export import Text, write_pretrained
from glassformer.store.families import FAMILIES
from glassformer.store.pretrained import read_pretrained
from specimens import close, model
from store.pretrained_examples import END, TEXT, library, pretrained

NOTHING_FIRST = "begins with the text itself: the tokenizer puts no token before it, so none comes first"
PLAIN = slice(len(SPECIALS), None)


def both(folder, before):
    """Log-probabilities of the same text: ours, and theirs in the order of our ids; <eos> first, then all plain."""
    found, cut = read_pretrained(folder), library()
    ids, end = found.tokenizer.encode(TEXT)[:20], cut.token_to_id(END)
    there = [cut.token_to_id(cut.id_to_token(id)) for id in cut.encode(TEXT).ids[:20]]
    ours = found.model.double()(torch.tensor([[BOS, *ids]])).log_softmax(-1)
    expected = before.double()(torch.tensor([[end, *there]])).log_softmax(-1)
    rest = [id for id in range(cut.get_vocab_size()) if id != end]
    return ours, torch.cat([expected[..., [end]], expected[..., rest]], -1)


@pytest.mark.parametrize("own", [{}, {"tie_embeddings": False}], ids=["tied", "untied"])
def test_every_token_has_the_probability_that_it_had(tmp_path, own):
    tied = {"tie_word_embeddings": not own}
    ours, expected = both(tmp_path, pretrained(tmp_path, lambda parts: parts["config"].update(tied), **own))
    close(torch.cat([ours[..., [EOS]], ours[..., PLAIN]], -1), expected)
    assert ours[..., [id for id in range(len(SPECIALS)) if id != EOS]].exp().sum() == 0
    assert ours.isfinite().all()


def test_text_is_cut_as_it_was_and_the_end_of_a_text_is_no_text(tmp_path):
    pretrained(tmp_path)
    ours, cut = read_pretrained(tmp_path).tokenizer, library()
    assert ours.tokens(ours.encode(TEXT)) == [ours.tokens([len(SPECIALS) + id])[0] for id in cut.encode(TEXT).ids]
    assert ours.decode(ours.encode(TEXT)) == TEXT
    assert min(ours.encode(END)) >= len(SPECIALS)
    assert ours.decode(ours.encode(END)) == END


def test_begin_and_end_have_the_row_of_their_one_token(tmp_path):
    before = pretrained(tmp_path)
    table, end = read_pretrained(tmp_path).model.decoder.embedding.weight, library().token_to_id(END)
    close(table[[BOS, EOS]], before.decoder.embedding.weight[[end, end]], tolerance=0)
    assert not table[PAD].any()


def as_published(parts):
    """The names of the model without its head, and masks, as in the files of 2019."""
    weights = {name.removeprefix("transformer."): each for name, each in parts["weights"].items()}
    parts["weights"] = weights | {f"h.{n}.attn.bias": torch.ones(1, 1, 32, 32) for n in range(2)}


def with_head(parts):
    parts["weights"]["lm_head.weight"] = parts["weights"]["transformer.wte.weight"].clone()


@pytest.mark.parametrize("change", [as_published, with_head])
def test_names_of_older_files_are_read(tmp_path, change):
    ours, expected = both(tmp_path, pretrained(tmp_path, change))
    close(ours[..., EOS], expected[..., 0])


def test_weights_in_half_precision_and_in_several_files(tmp_path):
    before = pretrained(tmp_path)
    weights = {name: each.half() for name, each in load_file(tmp_path / "model.safetensors").items()}
    (tmp_path / "model.safetensors").unlink()
    names, places = sorted(weights), {}
    for n, own in enumerate((names[::2], names[1::2])):
        save_file({name: weights[name] for name in own}, tmp_path / f"part-{n}.safetensors")
        places |= dict.fromkeys(own, f"part-{n}.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    found = read_pretrained(tmp_path)
    assert {each.dtype for each in found.model.parameters()} == {torch.float32}
    ours, expected = both(tmp_path, before.half())
    close(ours[..., EOS], expected[..., 0])


def test_rows_and_special_tokens_that_have_no_place_here_are_told(tmp_path):
    def more(parts):
        added = parts["tokenizer"]["added_tokens"]
        added.append({**added[0], "id": 271, "content": "<|chat|>"})
        parts["weights"]["transformer.wte.weight"] = torch.randn(274, 16)
        parts["config"]["vocab_size"] = 274

    pretrained(tmp_path, more)
    assert read_pretrained(tmp_path).notes == ["left out: 3 tokens that no text has, such as <|chat|>", NOTHING_FIRST]


def test_special_tokens_with_rows_of_their_own_are_read_but_not_written(tmp_path):
    row = torch.randn(1, 16)

    def begins(parts):
        added, table = parts["tokenizer"]["added_tokens"], parts["weights"]["transformer.wte.weight"]
        added.append({**added[0], "id": 271, "content": "<s>"})
        parts["weights"]["transformer.wte.weight"] = torch.cat([table, row])
        parts["config"].update(vocab_size=272, bos_token_id=271)

    pretrained(tmp_path, begins)
    found = read_pretrained(tmp_path)
    assert found.notes == [NOTHING_FIRST, "never written, as everywhere here: <bos>"]
    close(found.model.decoder.embedding.weight[[BOS]], row, tolerance=0)


def test_an_end_that_the_tokenizer_does_not_have_is_none_and_told(tmp_path):
    pretrained(tmp_path, lambda parts: parts["config"].update(bos_token_id=50256, eos_token_id=50256))
    found = read_pretrained(tmp_path)
    assert [note.partition(":")[0] for note in found.notes] == ["left out", "no beginning", "no end"]
    assert not found.documents
    assert found.model.config.silent == "0,1,2,3,4,5"


def edit(*places, value):
    """A change of one entry of a part."""

    def change(parts):
        for place in places[:-1]:
            parts = parts[place]
        parts[places[-1]] = value

    return change


def without(name):
    return lambda parts: parts["weights"].pop(name)


def larger(parts):
    parts["weights"]["transformer.wpe.weight"] = torch.zeros(33, 16)


def another_head(parts):
    parts["weights"]["lm_head.weight"] = parts["weights"]["transformer.wte.weight"] + 1


def added(parts):
    parts["tokenizer"]["added_tokens"].append(
        {**parts["tokenizer"]["added_tokens"][0], "content": "hey", "special": False}
    )


def lacks_a_byte(parts):
    parts["tokenizer"]["model"]["vocab"]["zz"] = parts["tokenizer"]["model"]["vocab"].pop("!")


def one_id_twice(parts):
    vocabulary = parts["tokenizer"]["model"]["vocab"]
    vocabulary["A"] = vocabulary["B"]


def named(name):
    def change(parts):
        parts["tokenizer"]["model"]["vocab"][name] = 271

    return change


def weight(value):
    return lambda parts: parts["weights"].update({"transformer.ln_f.bias": value})


CONFIG, CUT = "config", "tokenizer"
REFUSED = {
    "family": (
        edit(CONFIG, "model_type", value="gpt_neo"),
        "type gpt2, gpt_neox, llama, mistral can be .*; this one is 'gpt_neo'",
    ),
    "class": (edit(CONFIG, "architectures", value=["GPT2Model"]), r"GPT2LMHeadModel can be .* is \['GPT2Model'\]"),
    "scale": (edit(CONFIG, "scale_attn_by_inverse_layer_idx", value=True), "inverse_layer_idx must be False.*got True"),
    "type": (edit(CONFIG, "n_head", value="4"), "n_head must be a whole number of at least 1; got '4'"),
    "epsilon": (edit(CONFIG, "layer_norm_epsilon", value=-1), "epsilon must be a number of at least 0; got -1"),
    "activation": (edit(CONFIG, "activation_function", value="mish"), "must be one of gelu_new, .*; got 'mish'"),
    "heads": (edit(CONFIG, "n_head", value=3), r"config.json: d_model \(16\) must be a multiple of n_heads \(3\)"),
    "flag": (edit(CONFIG, "tie_word_embeddings", value=1), "tie_word_embeddings must be true or false; got 1"),
    "ends": (
        edit(CONFIG, "eos_token_id", value=[1, -2]),
        r"eos_token_id must be the id of a token, a list .*got \[1, -2\]",
    ),
    "object": (edit(CONFIG, value=[]), "config.json must hold an object of settings; got list"),
    "classes": (edit(CONFIG, "architectures", value=3), "architectures must be a list of names; got 3"),
    "huge": (edit(CONFIG, "layer_norm_epsilon", value=10**400), "epsilon must be a number of at least 0; got 1000"),
    "nan": (weight(torch.full((16,), torch.nan)), "must be finite numbers in float32; transformer.ln_f.bias has NaN"),
    "whole": (weight(torch.ones(16, dtype=torch.int8)), "1 of the wrong type: transformer.ln_f.bias .*found int8"),
    "missing": (without("transformer.ln_f.bias"), "1 missing: transformer.ln_f.bias"),
    "foreign": (edit("weights", "x", value=torch.ones(1)), "1 unexpected: x"),
    "shape": (larger, r"wpe.weight \(expected \[32, 16\], found \[33, 16\]\)"),
    "head": (another_head, 'lm_head.weight differs from transformer.wte.weight. Set "tie_word_embeddings" to false'),
    "model": (edit(CUT, "model", "type", value="WordPiece"), "as GPT-2, .* can be .*model.type='BPE'.*'WordPiece'"),
    "normalizer": (edit(CUT, "normalizer", value={"type": "NFD"}), "has another normalizer: .*NFD"),
    "space": (
        edit(CUT, "pre_tokenizer", "add_prefix_space", value=True),
        "another pre_tokenizer: .*add_prefix_space.: true",
    ),
    "vocabulary": (edit(CUT, "model", "vocab", value=[]), "whole numbers from 0; this one has none"),
    "added": (added, "only if they are special, or runs .*; 1 are not, the first of them 'hey'"),
    "no list": (edit(CUT, "added_tokens", value={"a": 1}), "Each of added_tokens has a content, .*; got {'a': 1}"),
    "no token": (edit(CUT, "added_tokens", value=[None]), "Each of added_tokens has a content, .*; got None"),
    "negative": (edit(CUT, "model", "vocab", "The", value=-1), "whole numbers from 0; this one has none, or others"),
    "shared": (one_id_twice, "has an id of its own; this tokenizer gives 33 to 'A' and 'B'"),
    "our name": (named("<eos>"), "special here and no text; this tokenizer has '<eos>'"),
    "no bytes": (named("日本"), "has 1 others, the first of them '日本'"),
    "merges": (edit(CUT, "model", "merges", value=3), r"`tokenizers` library cannot read .*\. Copy the file again"),
    "no model": (edit(CUT, "model", value=None), "has model.vocab, from tokens to ids"),
    "rows": (
        edit(CUT, "model", "vocab", "The", value=999),
        "the tokenizer has the id 999, but the model has 271 tokens",
    ),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_what_would_compute_something_else_is_refused(tmp_path, change, message):
    pretrained(tmp_path, change)
    with pytest.raises(GlassformerError, match=message):
        read_pretrained(tmp_path)


def test_a_space_before_each_text_is_refused_wherever_it_is_asked_for(tmp_path):
    pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": false}')
    read_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"add_prefix_space": true}')
    with pytest.raises(GlassformerError, match=r"tokenizer_config.json: .* add_prefix_space puts a space before it"):
        read_pretrained(tmp_path)


def test_folders_that_are_none_are_refused(tmp_path):
    with pytest.raises(GlassformerError, match=r"config.json, model.safetensors and tokenizer.json; .*away .* exist"):
        read_pretrained(tmp_path / "away")
    with pytest.raises(GlassformerError, match=r"has no config.json\. To download one: hf download"):
        read_pretrained(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(GlassformerError, match="file is a file"):
        read_pretrained(tmp_path / "file")
    (tmp_path / "recipe.toml").touch()
    with pytest.raises(GlassformerError, match=r"glassformer's own\. Use it as it is: glassformer generate"):
        read_pretrained(tmp_path)


def test_no_pickle_is_read_and_no_file_of_another_folder(tmp_path):
    pretrained(tmp_path, edit("weights", value={}))
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(GlassformerError, match=r"pytorch_model.bin is a pickle, which can run .*save_pretrained\("):
        read_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(GlassformerError, match=r"has no tokenizer.json\. .*AutoTokenizer.from_pretrained\("):
        read_pretrained(tmp_path)
    pretrained(tmp_path, edit("weights", value={}))
    for places in ({"weight_map": {"x": "../model.safetensors"}}, {"weight_map": 3}, {}):
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(places))
        with pytest.raises(GlassformerError, match='must have a "weight_map" from tensors to files beside it'):
            read_pretrained(tmp_path)


@pytest.mark.parametrize(("family", "settings"), [
    ("gpt2", {"shape": "decoder"}),
    ("gpt_neox", {"shape": "decoder"}),
    ("bart", {"norm_placement": "post"}),
    ("t5_gated", {"feed_forward": "gated"}),
])  # fmt: skip
def test_a_table_is_read_both_ways(family, settings):
    ours = dict(model(positions="learned", **settings).named_parameters())
    back = FAMILIES[family].load(FAMILIES[family].export(ours, 4), ours, 4)
    assert back.keys() == ours.keys()
    for name, each in ours.items():
        close(back[name], each, tolerance=0)


def linked(folder, cache):
    """A snapshot as the hub's cache has it: each name is a link to a file in blobs."""
    snapshot, blobs = cache / "snapshots" / "abc", cache / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for n, path in enumerate(sorted(folder.iterdir())):
        path.rename(blobs / str(n))
        (snapshot / path.name).symlink_to(f"../../blobs/{n}")
    return snapshot


def test_the_links_of_a_snapshot_are_followed_inside_its_cache(tmp_path):
    before = pretrained(tmp_path / "hf")
    snapshot = linked(tmp_path / "hf", tmp_path / "cache" / "models--a--b")
    (tmp_path / "here").symlink_to(snapshot)
    for folder in (snapshot, tmp_path / "here"):
        ours, expected = both(folder, before)
        close(ours[..., EOS], expected[..., 0])


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_link_that_leads_out_of_the_cache_is_refused(tmp_path, name):
    pretrained(tmp_path / "hf")
    snapshot = linked(tmp_path / "hf", tmp_path / "models--a--b")
    (snapshot / name).resolve().rename(tmp_path / "secret")
    (snapshot / name).unlink()
    (snapshot / name).symlink_to("../../../secret")
    with pytest.raises(GlassformerError, match=rf"{name} leads to .*secret.*cp -rL"):
        read_pretrained(snapshot)
    (tmp_path / "hf" / name).symlink_to(tmp_path / "secret")
    for path in snapshot.iterdir():
        if path.name != name:
            (tmp_path / "hf" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(GlassformerError, match="followed from a snapshot"):
        read_pretrained(tmp_path / "hf")


CHAT = ("<|eot|>", "<|eom|>")


def chat(*, names=CHAT[0], generation=None, before=(END,)):
    """A model with three tokens that end a text, of which tokenizer_config.json names one."""

    def change(parts):
        added, last = parts["tokenizer"]["added_tokens"], parts["config"]["eos_token_id"]
        added += [{**added[0], "id": last + n, "content": token} for n, token in enumerate(CHAT, 1)]
        parts["weights"]["transformer.wte.weight"] = torch.randn(last + 3, 16)
        ends = [last, last + 1, last + 2]
        parts["config"].update(vocab_size=last + 3, eos_token_id=ends if generation is None else ends[:2])
        parts["tokenizer"]["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [
                *({"SpecialToken": {"id": each, "type_id": 0}} for each in before),
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {each: {"id": each, "ids": [last], "tokens": [each]} for each in before},
        }

    def write(folder):
        before = pretrained(folder, change)
        end = json.loads((folder / "config.json").read_text())["eos_token_id"]
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": names}}))
        if generation is not None:
            (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end[0] + 2}))
        return before

    return write


@pytest.mark.parametrize("generation", [None, True], ids=["config.json", "and generation_config.json"])
def test_all_of_several_ends_are_ends_and_the_tokenizer_names_the_one_that_is_written(tmp_path, generation):
    chat(generation=generation)(tmp_path)
    found, row = read_pretrained(tmp_path), library().token_to_id(END)
    table = load_file(tmp_path / "model.safetensors")["transformer.wte.weight"]
    ours, ends = found.tokenizer, found.tokenizer.ends
    assert ours.tokens(ends) == [END, CHAT[1]]
    close(found.model.decoder.embedding.weight[[EOS, *ends]], table[[row + 1, row, row + 2]], tolerance=0)
    assert ours.decode([*ours.encode("a"), *ends]) == "a"
    assert ours.decode(ours.encode("".join(CHAT))) == "".join(CHAT)
    assert tokenizer_from_json(ours.to_json()).ends == ends
    logits = torch.randn(2, ours.vocab_size)
    joint = one_end(ends)(logits, Context([[], []], [[], []], [0, 0])).softmax(-1)
    close(joint[:, EOS], logits.softmax(-1)[:, [EOS, *ends]].sum(-1), tolerance=1e-6)
    assert not joint[:, [*ends]].any()


@pytest.mark.parametrize(("before", "begins"), [((END,), True), ((), False)])
def test_the_tokenizer_says_whether_a_token_comes_first_and_an_export_says_it_again(tmp_path, before, begins):
    chat(before=before)(tmp_path / "in")
    found = read_pretrained(tmp_path / "in")
    assert found.documents
    assert found.tokenizer.begins == tokenizer_from_json(found.tokenizer.to_json()).begins == begins
    never = [0, 1, 3, 4, 5]
    write_pretrained(tmp_path / "out", found.model, found.tokenizer, Text(True, never, 9), named="it")
    text = (tmp_path / "out" / "tokenizer.json").read_text()
    first, *rest = Tokenizer.from_str(text).encode("The model").tokens
    assert (first == "<bos>") is begins
    assert rest
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert len(config["eos_token_id"]) == len(set(config["eos_token_id"])) == 3
    again = read_pretrained(tmp_path / "out")
    assert (again.tokenizer.begins, again.documents) == (begins, True)
    assert again.tokenizer.decode(again.tokenizer.encode(TEXT)) == TEXT


def test_two_tokens_before_a_text_are_refused(tmp_path):
    chat(before=(END, END))(tmp_path)
    with pytest.raises(GlassformerError, match=r"at most one token comes before a text here; .* puts 2"):
        read_pretrained(tmp_path)


def test_bytes_that_a_vocabulary_lacks_are_unknown_and_counted(tmp_path):
    pretrained(tmp_path, lacks_a_byte)
    found = read_pretrained(tmp_path)
    assert "the vocabulary lacks 1 bytes of UTF-8, which become <unk>: 0x21" in found.notes
    ours = tokenizer_from_json(found.tokenizer.to_json())
    ids = ours.encode("a! b!!")
    assert ids.count(UNK) == 3
    assert ours.lacks("a! b!!") == ["!"] * 3
    assert ours.decode(ids) == "a<unk> b<unk><unk>"
    assert begins_in("a!b", ours.encode("a!b"), ours) == [0, 1, 2]
    assert not found.model.decoder.embedding.weight[UNK].any()
