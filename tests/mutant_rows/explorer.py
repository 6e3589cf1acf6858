"""Faults in traces, in the explorer's page, and in its server."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mutant_runner import Mutant

BOX, MAKE = "tests/lens/trace/test_container.py", "tests/lens/trace/test_make.py"
SERVER, CLI = "tests/lens/server/test_server.py", "tests/cli/test_explore.py"
PAGE, ACCESS, LIVE = (f"tests/lens/page/test_{name}.py" for name in ("page", "access", "live"))
DAMAGE = f"{BOX}::test_damage_is_named_by_its_field"

# fmt: off
PYTHON: list[Mutant] = [
    Mutant("buffers are not aligned", "lens/trace/container.py",
        "parts.append(data + bytes(-len(data) % ALIGNED))", "parts.append(data)", f"{BOX}::test_buffers_are_aligned_and_little_endian"),
    Mutant("a trace of another version is read", "lens/trace/container.py",
        "if isinstance(version, int) and version != VERSION:", "if False:", f"{BOX}::test_a_trace_of_a_later_version_is_left_to_its_program"),
    Mutant("a buffer may reach beyond the file", "lens/trace/container.py",
        'or entry["offset"] + size > room:', "or False:", f"{DAMAGE} {BOX}::test_a_damaged_file_is_refused"),
    Mutant("lengths of attention are not compared", "lens/trace/container.py",
        'if group[f"{side}_len"] != length:', "if False:", DAMAGE),
    Mutant("a field may be missing", "lens/trace/schema.py",
        "if name not in value:", "if False:", DAMAGE),
    Mutant("true is a number", "lens/trace/schema.py",
        'and not (isinstance(value, bool) and kind in ("number", "integer"))', "", DAMAGE),
    Mutant("weights are stored without the root", "lens/trace/quantise.py",
        "return np.rint(255 * np.sqrt(weights))", "return np.rint(255 * weights)", f"{BOX}::test_quantising_loses_no_more_than_it_says"),
    Mutant("the replay leaves a trace in the model", "lens/trace/sight.py",
        "        stack.through = own\n", "        pass\n", f"{MAKE}::test_looking_changes_nothing"),
    Mutant("the last token is replayed, too", "lens/trace/reading.py",
        "read = [BOS, *said[:-1]]", "read = [BOS, *said]", f"{MAKE}::test_steps_are_those_of_the_answer"),
    Mutant("gold is compared one place late", "lens/trace/reading.py",
        "padded(right, len(read)), 1, fast)", "padded([BOS, *(right or [])], len(read)), 1, fast)", f"{MAKE}::test_steps_are_those_of_the_answer"),
    Mutant("the rank counts the token itself", "lens/trace/steps.py",
        "(p > p[said]).sum()", "(p >= p[said]).sum()", f"{MAKE}::test_steps_are_those_of_the_answer"),
    Mutant("the logit lens leaves out the norm", "lens/trace/steps.py",
        "model.head(stack.norm(part[None]))", "model.head(part[None])", f"{MAKE}::test_logit_lens_ends_in_the_logits"),
    Mutant("a window counts as causal", "lens/trace/make.py",
        "square and (allowed == np.tril(np.ones_like(allowed))).all()", "square", f"{MAKE}::test_masks_are_named_by_their_rule"),
    Mutant("attention of any size is kept", "lens/trace/make.py",
        "    if weights > MOST_WEIGHTS:", "    if False:", f"{MAKE}::test_what_cannot_be_traced_is_refused"),
    Mutant("any host is answered", "lens/server/guard.py",
        "if host not in hosts:", "if False:", f"{SERVER}::test_another_host_is_refused"),
    Mutant("another page may ask", "lens/server/guard.py",
        'origin is not None and origin.partition("://")[2] not in hosts', "False", f"{SERVER}::test_a_request_from_another_page_is_refused"),
    Mutant("no token is asked for", "lens/server/guard.py",
        'if not hmac.compare_digest(request.headers.get(TOKEN, "").encode(), token.encode()):', "if False:", f"{SERVER}::test_data_need_the_token"),
    Mutant("forms are read", "lens/server/guard.py",
        'request.headers.get("content-type", "").partition(";")[0] != "application/json"', "False", f"{SERVER}::test_only_json_is_read"),
    Mutant("a body of any size is read", "lens/server/guard.py",
        "if size > MOST_BODY:", "if False:", f"{SERVER}::test_only_json_is_read"),
    Mutant("answers carry no policy", "lens/server/guard.py",
        '"Content-Security-Policy": served_policy()', '"X-Policy": ""', f"{SERVER}::test_every_answer_carries_the_policy"),
    Mutant("unknown fields are let through", "lens/server/requests.py",
        "        if name not in names:", "        if False:", f"{SERVER}::test_a_wrong_request_is_told_why"),
    Mutant("the run's own traces make room", "lens/server/api.py",
        "del self.traces[list(self.traces)[self.own]]", "del self.traces[next(iter(self.traces))]", f"{SERVER}::test_old_answers_make_room"),
    Mutant("it listens to everyone", "lens/server/app.py",
        'HOST = "127.0.0.1"', 'HOST = "0.0.0.0"', f"{SERVER}::test_it_listens_on_loopback_alone"),
    Mutant("half a line of figures is read", "lens/server/subject.py",
        'self.metrics.read_bytes().split(b"\\n")', '(self.metrics.read_bytes() + b"\\n").split(b"\\n")', f"{SERVER}::test_what_is_known_of_the_run"),
    Mutant("heads of other weights are shown", "lens/server/run.py",
        'if kept.get("weights_sha256") == digest:', "if kept:", f"{CLI}::test_the_heads_are_found_out_once"),
]
BROWSER: list[Mutant] = [
    Mutant("a token becomes HTML", "lens/page/dom.js",
        "  element.append(...nodes(children));", "  for (const each of nodes(children)) typeof each === \"string\" && element instanceof HTMLElement ? element.insertAdjacentHTML(\"beforeend\", each) : element.append(each);", f"{PAGE}::test_tokens_are_text_and_nothing_else"),
    Mutant("control characters are shown as they are", "lens/page/text.js",
        "shown += name ?? (unseen(code) ? `\\\\u{${code.toString(16)}}` : each);", "shown += each;", f"{PAGE}::test_tokens_are_text_and_nothing_else"),
    Mutant("queries and keys change places", "lens/page/trace.js",
        "this.offset(head) + q * this.group.k_len + k", "this.offset(head) + k * this.group.q_len + q", f"{PAGE}::test_what_a_cell_shows_is_the_weight"),
    Mutant("masked cells look like zero", "lens/page/heatmap.js",
        "    this.drawMasked(pen);\n", "", f"{PAGE}::test_masked_is_hatched_and_zero_is_the_background"),
    Mutant("a lock cannot be undone", "lens/page/state.js",
        "set(same ? { q: null, k: null } : { q, k });", "set({ q, k });", f"{PAGE}::test_the_pointer_previews_a_click_locks_and_escape_frees"),
    Mutant("the address is not written", "lens/page/state.js",
        "  write(push);\n", "", f"{PAGE}::test_the_address_holds_the_view"),
    Mutant("the temperature of the page multiplies", "lens/page/chances.js",
        "Math.exp((logit - most) / temperature)", "Math.exp((logit - most) * temperature)", f"{PAGE}::test_steps_and_the_chances_under_a_temperature"),
    Mutant("a saved picture has no mark", "lens/page/files.js",
        'class: "marked" });', 'class: "chosen" });', f"{PAGE}::test_what_is_saved_holds_the_selection"),
    Mutant("keys are lost where they come fast", "lens/page/heatmap.js",
        "      this.keyed = { q, k };\n", "", f"{PAGE}::test_all_by_keyboard"),
    Mutant("a damaged trace is shown", "lens/page/container.js",
        "  check(header, JSON.parse", "  void (header, check, JSON.parse", f"{ACCESS}::test_a_damaged_trace_is_told_of"),
    Mutant("the page asks without its token", "lens/page/data.js",
        '"X-Glassformer-Token": key', '"X-Glassformer-Token": ""', f"{LIVE}::test_every_screen_asks_this_server_alone"),
]
ROWS = PYTHON + (BROWSER if find_spec("playwright") and Path("/usr/bin/chromium").exists() else [])
