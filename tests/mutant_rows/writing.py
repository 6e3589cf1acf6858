"""Answers of the explorer: how they are begun, told of, searched for and compared."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mutant_runner import Mutant

ANSWERING = "tests/lens/trace/test_answering.py"
STREAM = "tests/lens/server/test_stream.py"
SERVER = "tests/lens/server/test_server.py"
PAGE = "tests/lens/page/test_writing.py"

# fmt: off
PYTHON: list[Mutant] = [
    Mutant("a beam forgets how it is to begin", "lens/trace/answering.py",
        "tree, begins_with(manner.begin)]", "tree]", f"{ANSWERING}::test_a_beam_may_begin_as_it_is_told"),
    Mutant("a tree multiplies no chances", "lens/trace/beams.py",
        "Node(self.nodes[ids[:-1]].log_p + float(", "Node(float(", f"{ANSWERING}::test_the_tree_of_a_beam"),
    Mutant("an answer of a beam hangs on the root", "lens/trace/beams.py",
        "                ids = (*ids, EOS)\n", "", f"{ANSWERING}::test_the_tree_of_a_beam"),
    Mutant("answers of a beam have no rank", "lens/trace/beams.py",
        '{"score": brief(node.score), "rank": node.rank}', '{"score": brief(node.score), "rank": 0}', f"{ANSWERING}::test_the_tree_of_a_beam"),
    Mutant("nobody is told of tokens", "lens/trace/answering.py",
        "        if manner.heard is not None:\n            manner.heard(said[-1])\n", "", f"{ANSWERING}::test_each_token_is_told_and_the_writing_can_be_ended"),
    Mutant("an encoder is begun for in silence", "lens/trace/reading.py",
        "    if not isinstance(model.config.head, Lm) or not model.config.stack.causal:", "    if False:", f"{ANSWERING}::test_a_beginning_must_fit_and_be_written"),
    Mutant("a beam forgets what was asked before", "lens/server/traces.py",
        "(given.manner or asked.manner)._replace(begin", "(given.manner or USUAL_MANNER)._replace(begin", f"{SERVER}::test_a_beam_is_gone_on_from"),
    Mutant("the right answer is lost on the way", "lens/server/traces.py",
        "self.subject.trace(asked.source, asked.gold, manner)", "self.subject.trace(asked.source, None, manner)", f"{SERVER}::test_an_answer_is_begun_otherwise"),
    Mutant("what is written without heads is another text", "lens/server/api.py",
        "self.traces.run(fewer, repeated(known), poll=poll)", "self.traces.run(fewer, poll=poll)", f"{SERVER}::test_heads_are_taken_out"),
    Mutant("a mistake before the first token is a line", "lens/server/stream.py",
        '    elif "error" in first:', "    elif False:", f"{STREAM}::test_a_mistake_is_a_refusal"),
    Mutant("a fault is silence", "lens/server/stream.py",
        "            await running  # what went wrong in it goes wrong here, too\n", "", f"{STREAM}::test_a_fault_of_ours_is_no_silence"),
    Mutant("the model writes for one who left", "lens/server/stream.py",
        "        finally:\n            asker.left.set()\n", "        finally:\n            pass\n", f"{STREAM}::test_who_leaves_ends_the_writing"),
    Mutant("an answer may take all day", "lens/server/stream.py",
        "if time.monotonic() > self.most:", "if False:", f"{STREAM}::test_an_answer_has_its_time"),
    Mutant("who leaves before the first line is waited for", "lens/server/stream.py",
        "                self.left.set()\n", "                pass\n", f"{STREAM}::test_who_leaves_before_the_first_line_ends_it_too"),
    Mutant("the end of a server ends no answer", "lens/server/stream.py",
        "self.left.is_set() or self.ended.is_set()", "self.left.is_set()", f"{STREAM}::test_the_server_ends_what_it_works_at"),
    Mutant("what lacks heads gets them back", "lens/server/traces.py",
        "[*self.without, *heads]", "heads", f"{SERVER}::test_heads_are_taken_out_of_what_lacks_some"),
    Mutant("an answer is gone on from with all heads", "lens/server/traces.py",
        "        if not asked.without:\n", "        if not asked.without or asked.manner.begin:\n", f"{SERVER}::test_heads_are_taken_out_of_what_lacks_some"),
    Mutant("a begun beam holds what it is told for certain", "lens/trace/answering.py",
        "tree, begins_with(manner.begin)]", "begins_with(manner.begin), tree]", f"{ANSWERING}::test_a_beam_may_begin_as_it_is_told"),
    Mutant("a fault before the first line is an empty answer", "lens/server/stream.py",
        "        await running  # raises: nothing was told\n", "        pass\n", f"{STREAM}::test_a_fault_before_anything_is_told_is_no_answer"),
    Mutant("who waits for the model holds a thread", "lens/server/api.py",
        "        self.one = CapacityLimiter(1)", "        self.one = CapacityLimiter(99)", f"{SERVER}::test_many_who_wait_hold_no_thread"),
    Mutant("half a request is raised", "lens/server/guard.py",
        "with suppress(ClientDisconnect):", "with suppress(KeyError):", f"{SERVER}::test_half_a_request_is_none"),
    Mutant("figures of a page are no JSON", "lens/server/figures.py",
        "json.loads(line, parse_constant=lambda _: None)", "json.loads(line)", "tests/lens/server/test_figures.py::test_what_is_damaged_or_missing"),
    Mutant("a checkpoint that is deleted meanwhile ends it", "store/checkpoint.py",
        "if found == Path(folder) or (found / MANIFEST).exists():", "if True:", "tests/store/test_checkpoint.py::test_what_is_deleted_meanwhile_has_a_successor"),
    Mutant("a tiny temperature is zero", "decode/choose/filters.py",
        "(logits - largest) / max(value, least)", "(logits - largest) / value", "tests/decode/choose/test_filters.py::test_tiny_numbers_are_no_zero"),
    Mutant("a tiny share of the mass keeps none", "decode/choose/filters.py",
        "before < least)", "before < p)", "tests/decode/choose/test_filters.py::test_tiny_numbers_are_no_zero"),
    Mutant("what stands in a head's place is always nothing", "lens/server/run.py",
        "silence(model, heads, kind, means", 'silence(model, heads, "zero", means', "tests/lens/server/test_means.py"),
    Mutant("two kinds of what stands in a head's place are mixed", "lens/server/traces.py",
        "        if self.without and kind != self.kind:\n", "        if False:\n", "tests/lens/server/test_means.py"),
]
BROWSER: list[Mutant] = [
    Mutant("a branch leaves out a token", "lens/page/ask.js",
        "ids.slice(n_prompt, pos + 1)", "ids.slice(n_prompt, pos)", f"{PAGE}::test_another_token_is_gone_on_with"),
    Mutant("a beam's best answer winds", "lens/page/beams.js",
        "a.best === b.best ? b.log_p - a.log_p : a.best - b.best", "b.log_p - a.log_p", f"{PAGE}::test_the_tree_of_a_beam"),
    Mutant("a tree forgets where its lines began", "lens/page/beams.js",
        "ids: [...(parent?.ids ?? []), node.token]", "ids: [node.token]", f"{PAGE}::test_the_tree_of_a_beam"),
    Mutant("both answers have the chances of one", "lens/page/twosteps.js",
        "of(other, same, settings)", "of(trace, step, settings)", f"{PAGE}::test_chances_of_two_answers"),
    Mutant("tokens come all at once", "lens/page/data.js",
        "      heard(last);\n", "", f"{PAGE}::test_tokens_come_one_by_one_and_can_be_stopped"),
    Mutant("a stopped answer goes on", "lens/page/data.js",
        "body: JSON.stringify(body), signal });", "body: JSON.stringify(body) });", f"{PAGE}::test_tokens_come_one_by_one_and_can_be_stopped"),
    Mutant("the page asks for nothing in a head's place", "lens/page/ablations.js",
        "{ heads: out, kind: kind(), trace", "{ heads: out, trace", f"{PAGE}::test_what_stands_in_their_place_is_chosen"),
    Mutant("heads that moved are those of another answer", "lens/page/moved.js",
        "await context.source.trace(same)", "await context.source.trace(context.trace.header.run.id)", f"{PAGE}::test_how_far_the_others_moved"),
]
ROWS = PYTHON + (BROWSER if find_spec("playwright") and Path("/usr/bin/chromium").exists() else [])
