"""The server answers its own page, and nobody else; what the model is asked is checked field by field."""

import json

import numpy as np
import pytest

from glassformer import ModelConfig, StackConfig, Transformer, trace
from glassformer.base.errors import GlassformerError
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokens.vocabulary import Labels
from glassformer.lens.ablate import silence
from glassformer.lens.page.bundle import served
from glassformer.lens.roles.diagnosis import open_run, usual_outputs
from glassformer.lens.server.app import make_app, new_token
from glassformer.lens.server.requests import MOST_BODY
from glassformer.lens.server.subject import SEQUENCES, Subject, subject_of
from glassformer.lens.trace.make import from_bytes
from glassformer.lens.trace.reading import Layout, Manner
from glassformer.nn.outputs import Classify
from lens.explored import LETTERS, small
from lens.server.requests_of import HEADS, MODEL, PORT, TOKEN, ask, ask_all
from lens.test_roles_of_a_run import SMALL, untrained_run

SHORT = b'{"text": "ab", "decode": {"max_new_tokens": 1}}'


def test_the_page_needs_no_token_and_holds_no_data(app):
    answer = ask(app, "GET", "/", token=None)
    assert answer.status == 200
    assert answer.body.decode() == served()
    assert "toy" not in served()


@pytest.mark.parametrize("path", ["/api/run", "/api/metrics", "/api/traces", "/api/trace/0", "/api/trace/0/header"])
@pytest.mark.parametrize("token", [None, "", "another", TOKEN + "x", "ü"])
def test_data_need_the_token(app, path, token):
    answer = ask(app, "GET", path, token=token)
    assert answer.status == 403
    assert "token" in answer.json["error"]


FOREIGN = [
    "evil.example", "evil.example:8642", "", "0.0.0.0:8642", "localhost.evil.example", "192.168.0.5:8642",
    "localhost:x",
]  # fmt: skip


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize("path", ["/", "/static/page.js", "/api/run"])
def test_another_host_is_refused(app, host, path):
    answer = ask(app, "GET", path, host=host)
    assert answer.status == 400
    assert "tunnel" in answer.json["error"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "127.0.0.2"])
@pytest.mark.parametrize("port", [f":{PORT}", ":9999", ":80", ""])
def test_names_of_this_machine_are_taken_at_the_port_of_any_tunnel(app, host, port):
    assert ask(app, "GET", "/api/run", host=host + port).status == 200
    assert ask(app, "GET", "/api/run", host=host + port, token=None).status == 403


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_from_another_page_is_refused(app, method):
    """The page's own origin is that of the tunnel's end; another port of the same machine is another page."""

    def status(**headers):
        path, body = ("/api/run", b"") if method == "GET" else ("/api/trace", SHORT)
        return ask(app, method, path, body, **headers).status

    for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://localhost.evil.example", "127.0.0.1"):
        assert status(origin=origin) == 403
    assert status(origin=f"http://127.0.0.1:{PORT}") == 200
    assert status(host="localhost:9999", origin="http://localhost:9999") == 200
    assert status(host="localhost:9999", origin=f"http://localhost:{PORT}") == 403


def test_only_json_is_read(app):
    assert ask(app, "POST", "/api/trace", SHORT, content_type="text/plain").status == 415
    assert ask(app, "POST", "/api/trace", b'{"text": "' + b"a" * MOST_BODY + b'"}').status == 413


@pytest.mark.parametrize("path", [
    "/static/../bundle.py",
    "/static/..%2fbundle.py",
    "/static//etc/passwd",
    "/static/bundle.py",
    "/static/index.html",
    "/static/main.js",
    "/etc/passwd",
    "/api/trace/../run",
    "/api/trace/999",
    "/static/",
    "/favicon.ico",
])  # fmt: skip
def test_nothing_but_the_page_is_given(app, path):
    assert ask(app, "GET", path).status == 404


@pytest.mark.parametrize("path", ["/", "/static/page.js", "/api/run", "/nothing"])
def test_every_answer_carries_the_policy(app, path):
    headers = ask(app, "GET", path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert not any(name.startswith("access-control") for name in headers)


def test_what_is_known_of_the_run(app):
    run = ask(app, "GET", "/api/run").json
    assert (run["name"], run["sentences"], run["examples"]) == ("toy", ["Found."], ["abc", "ab"])
    assert [line["step"] for line in run["metrics"]] == [1, 2], "half a line is still being written"
    assert ask(app, "GET", "/api/metrics?since=1").json["next"] == 2
    assert ask(app, "GET", "/api/metrics?since=-1").status == 400


def test_traces_of_the_examples(app):
    assert [each["title"] for each in ask(app, "GET", "/api/traces").json["traces"]][:2] == ["abc", "ab"]
    made = from_bytes(ask(app, "GET", "/api/trace/0").body)
    assert made.header["heads"] == HEADS
    assert made.header["steps"][0]["gold"] == LETTERS.encode("c")[0]


def test_a_text_is_answered(app):
    options = {"text": "dcba", "decode": {"temperature": 1, "seed": 3, "top_k": 4, "max_new_tokens": 5}}
    name = ask(app, "POST", "/api/trace", json.dumps(options).encode()).json["id"]
    made = from_bytes(ask(app, "GET", f"/api/trace/{name}").body)
    assert made.sources == [*"dcba", "<eos>"]
    assert made.header["run"]["decoding"]["seed"] == 3
    assert len(made.header["steps"]) <= 5


def test_an_answer_is_begun_otherwise(app):
    """A token of a known answer is another: what was before it stays, the model goes on behind it."""
    whole = from_bytes(ask(app, "GET", "/api/trace/0").body)
    written = whole.header["sequences"]["target"]["ids"][1:]
    begin = [*written[:2], next(id for id in LETTERS.encode("abc") if id != written[2])]
    name = ask(app, "POST", "/api/trace", json.dumps({"trace": "0", "begin": begin}).encode()).json["id"]
    made = from_bytes(ask(app, "GET", f"/api/trace/{name}").body)
    assert made.sources == whole.sources
    assert [step["chosen"] for step in made.header["steps"]][:3] == begin
    assert made.header["steps"][0]["gold"] == LETTERS.encode("c")[0], "the right answer is still known"
    (title,) = [each["title"] for each in ask(app, "GET", "/api/traces").json["traces"] if each["id"] == name]
    assert title == f"abc · with {LETTERS.tokens(begin[2:])[0]} as token 3"


def test_a_beam_is_gone_on_from(app):
    """In the manner in which it was written: with its beam, to its length."""
    options = {"text": "dcba", "decode": {"beam": 3, "max_new_tokens": 4}}
    name = ask(app, "POST", "/api/trace", json.dumps(options).encode()).json["id"]
    begin = LETTERS.encode("b")
    again = ask(app, "POST", "/api/trace", json.dumps({"trace": name, "begin": begin}).encode()).json["id"]
    header = ask(app, "GET", f"/api/trace/{again}/header").json
    assert header["beams"]["width"] == 3
    assert header["sequences"]["target"]["ids"][1:2] == begin
    assert len(header["sequences"]["target"]["ids"]) <= 5
    assert header["run"]["note"] == f"beam 3, with {LETTERS.tokens(begin)[0]} as token 1"


@pytest.mark.parametrize(("body", "word"), [
    ("{", "JSON object"),
    ("[1]", "JSON object"),
    ("[" * 50_000, "JSON object"),
    ({"txt": "ab"}, "text"),
    ({"text": 3}, "text"),
    ({"text": "ab", "gold": 3}, "gold"),
    ({"text": "ab", "decode": [1]}, "decode"),
    ({"text": "ab", "decode": {"beams": 3}}, "decode.beams"),
    ({"text": "ab", "decode": {"temperature": "hot"}}, "temperature"),
    ({"text": "ab", "decode": {"temperature": -1}}, "temperature"),
    ({"text": "ab", "decode": {"top_k": 5}}, "top_k"),
    ({"text": "ab", "decode": {"max_new_tokens": 257}}, "max_new_tokens"),
    ({"text": "ab", "decode": {"max_new_tokens": 1.5}}, "decode.max_new_tokens"),
    ({"text": "ab", "decode": {"beam": 17}}, "decode.beam"),
    ({"text": "ab", "decode": {"beam": True}}, "decode.beam"),
    ({"text": "ab", "decode": {"beam": 2, "temperature": 1}}, "beam=2"),
    ({"text": "ab", "trace": "0"}, "text"),
    ('{"text": "ab", "decode": {"temperature": 1' + "0" * 400 + "}}", "finite"),
    ('{"text": "ab", "\\ud800": 1}', "is not a field"),
    ({"ids": ["a"]}, "ids"),
    ({"ids": [1] * 5000}, "ids"),
    ({"text": "ab", "begin": [6] * 300}, "begin"),
    ({"trace": "999"}, "no such trace"),
    ({"trace": 0}, "trace"),
    ({"text": "ab", "begin": "ab"}, "begin"),
    ({"text": "ab", "begin": [-1]}, "begin"),
    ({"text": "ab", "begin": [True]}, "begin"),
    ({"text": "ab", "begin": [99]}, "a beginning"),
    ({"text": "ab", "begin": [6] * 3, "decode": {"max_new_tokens": 2}}, "got 3 tokens to begin with"),
    ({"text": "a" * 5000}, "4096"),
    ({"text": "\ud800"}, "surrogate"),
], ids=lambda value: str(value)[:40])  # fmt: skip
def test_a_wrong_request_is_told_why(app, body, word):
    data = (body if isinstance(body, str) else json.dumps(body)).encode()
    answer = ask(app, "POST", "/api/trace", data)
    assert answer.status == 400
    assert word in answer.json["error"]


def test_old_answers_make_room(app, monkeypatch):
    monkeypatch.setattr("glassformer.lens.server.app.MOST_TRACES", 4)
    for _ in range(4):
        ask(app, "POST", "/api/trace", json.dumps({"text": "a", "decode": {"max_new_tokens": 1}}).encode())
    known = [each["id"] for each in ask(app, "GET", "/api/traces").json["traces"]]
    assert known[:2] == ["0", "1"], "the run's own stay"
    assert len(known) == 4


def test_heads_are_taken_out(app):
    options = {"trace": "0", "heads": [{"block": "cross", "layer": 0, "head": head} for head in range(4)]}
    response = ask(app, "POST", "/api/ablate", json.dumps(options).encode()).json
    assert response["metrics"] == {"name": "exact_match", "before": 1.0, "after": 0.2, "n": 5}
    whole = from_bytes(ask(app, "GET", "/api/trace/0").body)
    assert response["before"] == whole.output
    same = from_bytes(ask(app, "GET", f"/api/trace/{response['same']}").body)
    assert same.output == whole.output, "made to write the same"
    assert same.attention("cross").shape == whole.attention("cross").shape
    assert np.array_equal(same.attention("encoder"), whole.attention("encoder")), "nothing before it changed"
    assert not np.array_equal(same.attention("cross")[1], whole.attention("cross")[1]), "what comes after it did"
    titles = {each["id"]: each["title"] for each in ask(app, "GET", "/api/traces").json["traces"]}
    assert titles[response["same"]] == "abc · without 4 heads"


def test_heads_are_taken_out_of_what_lacks_some(app):
    """What is gone on from, or loses more heads, stays without those that it lacks."""
    first = [{"block": "encoder", "layer": 0, "head": 1}]
    options = json.dumps({"trace": "0", "heads": first}).encode()
    one = ask(app, "POST", "/api/ablate", options).json["same"]
    again = ask(app, "POST", "/api/ablate", json.dumps({"trace": one, "heads": first}).encode()).json["same"]
    weights = [from_bytes(ask(app, "GET", f"/api/trace/{name}").body).attention("cross") for name in ("0", one, again)]
    assert np.array_equal(weights[1], weights[2]), "nothing more is lacking"
    assert not np.array_equal(weights[0], weights[1])
    more = [{"block": "decoder", "layer": 1, "head": 2}]
    two = ask(app, "POST", "/api/ablate", json.dumps({"trace": one, "heads": more}).encode()).json["same"]
    on = ask(app, "POST", "/api/trace", json.dumps({"trace": one, "begin": LETTERS.encode("b")}).encode()).json["id"]
    titles = {each["id"]: each["title"] for each in ask(app, "GET", "/api/traces").json["traces"]}
    assert titles[two] == "abc · without e.0.1, d.1.2"
    assert titles[on] == "abc · without e.0.1, with b as token 1"
    with silence(MODEL, [("encoder", 0, 1)]):
        expected = trace(MODEL, LETTERS, "abc", gold="cba", begin=LETTERS.encode("b"))
    made = from_bytes(ask(app, "GET", f"/api/trace/{on}").body)
    assert np.array_equal(made.attention("cross"), expected.attention("cross"))
    patched = ask(app, "POST", "/api/patch", json.dumps({"trace": "0", "other": one}).encode())
    assert patched.status == 400
    assert "run without some" in patched.json["error"]


def test_half_a_request_is_none(app):
    """Its sender has left; nobody is told, and nothing is raised."""
    assert ask(app, "POST", "/api/trace", b'{"text": "ab"', leaves=True).status == 400


def test_many_who_wait_hold_no_thread(app):
    """While one is answered and fifty wait, the run's figures are told at once."""
    answers = ask_all(app, 50, "/api/trace", SHORT, "/api/metrics")
    assert [each.status for each in answers] == [200] * 51


def test_ids_are_read_as_they_are(app):
    options = {"ids": LETTERS.encode("cab"), "decode": {"max_new_tokens": 2}}
    name = ask(app, "POST", "/api/trace", json.dumps(options).encode()).json["id"]
    assert from_bytes(ask(app, "GET", f"/api/trace/{name}").body).sources == [*"cab", "<eos>"]


@pytest.mark.parametrize("body", [
    {"trace": "0", "heads": []},
    {"heads": [{}]},
    {"trace": "0", "heads": [{"block": "cross"}]},
    {"trace": "0", "heads": [{"block": "cross", "layer": 0, "head": 0}], "kind": "resample"},
    {"trace": "0", "heads": [{"block": "cross", "layer": 0, "head": 0}], "kind": ["mean"]},
    {"trace": "0", "heads": [{"block": "cross", "layer": True, "head": 0}]},
    {"trace": "999", "heads": [{"block": "cross", "layer": 0, "head": 0}]},
], ids=str)  # fmt: skip
def test_wrong_heads_are_refused(app, body):
    assert ask(app, "POST", "/api/ablate", json.dumps(body).encode()).status == 400


def test_each_launch_has_its_own_token():
    tokens = {new_token() for _ in range(20)}
    assert len(tokens) == 20
    assert all(len(each) >= 22 for each in tokens)


# --- Without some heads a classifier gives a label, and a model that is given its tokens holds some likeliest


TEXT = "abcdefghij"
OUT = [("encoder", 0, head) for head in range(4)]


def label(trace):
    return [trace.header["labels"][0][0]]


def likeliest(trace):
    return [trace.header["vocab"][str(step["top"][0][0])] for step in trace.header["steps"]]


@pytest.mark.parametrize("message", [label, likeliest])
def test_what_is_answered_without_heads(message):
    stack = StackConfig(d_model=16, n_heads=4, n_layers=2, d_ff=32, dropout=0.0)
    judge = Transformer(ModelConfig(LETTERS.vocab_size, encoder=stack, head=Classify(3))).eval()
    both, given = Tokenizers(LETTERS, LETTERS), {"examples": [(TEXT, None)], "silence": silence}
    if message is label:
        subject = Subject("judge", judge, Tokenizers(LETTERS, Labels(["bad", "fine", "good"])), **given)
    else:
        subject = Subject("masked", small("encoder"), both, Layout(masked=True), **given)
    heads = [{"block": block, "layer": layer, "head": head} for block, layer, head in OUT]
    app = make_app(subject, TOKEN)
    response = ask(app, "POST", "/api/ablate", json.dumps({"trace": "0", "heads": heads}).encode()).json
    assert response["before"] == message(subject.trace(TEXT))
    with silence(subject.model, OUT):
        assert response["after"] == message(subject.trace(TEXT))
    if message is likeliest:
        assert response["before"] != [*TEXT], "what was read is no answer"


# --- Heads of a run that are taken out give what they give on average, where that is asked for


def silenced(subject, kind, means, manner):
    """The trace of the first example without two heads, in whose place stands this."""
    with silence(subject.model, [("cross", 0, 0), ("cross", 0, 1)], kind, means=means):
        return subject.trace(*subject.examples[0], manner)


def test_heads_give_their_mean(tmp_path):
    """What stands in their place is what they give on average over the run's own probe, as in the diagnosis."""
    run = untrained_run(tmp_path / "run", "reverse", SMALL)
    subject = subject_of(run)
    app = make_app(subject, TOKEN)
    heads = [{"block": "cross", "layer": 0, "head": head} for head in range(2)]
    options = {"trace": "0", "heads": heads, "kind": "mean"}
    name = ask(app, "POST", "/api/ablate", json.dumps(options).encode()).json["same"]
    made = from_bytes(ask(app, "GET", f"/api/trace/{name}").body)
    means = usual_outputs(subject.model, open_run(run).probe(SEQUENCES, 1))
    written = from_bytes(ask(app, "GET", "/api/trace/0").body).header["sequences"]["target"]["ids"][1:]
    expected, nothing = (
        silenced(subject, kind, means, Manner(max_new_tokens=len(written), begin=written)) for kind in ("mean", "zero")
    )
    for block in ("decoder", "cross"):
        assert np.array_equal(made.attention(block), expected.attention(block))
    chances = [[step["p"] for step in each.header["steps"]] for each in (made, expected, nothing)]
    assert chances[0] == chances[1]
    assert chances[0] != chances[2], "of the last layer's heads the chances alone tell what stood in their place"
    assert made.header["run"]["note"].startswith("with the mean of x.0.0, x.0.1")
    refused = ask(app, "POST", "/api/ablate", json.dumps({"trace": name, "heads": heads}).encode())
    assert refused.status == 400
    assert "it is 'mean'; got 'zero'" in refused.json["error"]


def test_the_figure_without_heads_can_be_ended(tmp_path):
    """Who asked may have left: it is asked for at each batch."""
    subject = subject_of(untrained_run(tmp_path / "run", "reverse", SMALL))

    def end():
        raise GlassformerError("Nobody waits.")

    with pytest.raises(GlassformerError, match="Nobody waits"):
        subject.score(end)
