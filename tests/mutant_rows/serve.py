"""Faults in serving: who may ask, what is taken, who is dropped, and what is told."""

from __future__ import annotations

from mutant_runner import Mutant

DONE = "tests/serve/test_completions.py"
REFUSED = "tests/serve/test_refusals.py"
CLIENTS = "tests/serve/test_clients.py"
LINE = "tests/serve/test_protocol.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("any host will do", "serve/guard.py", "if name in allowed or", "if True or",
        f"{REFUSED}::test_other_hosts_are_refused_on_every_path_and_method[evil.example]"),
    Mutant("a name may go on behind ours", "serve/guard.py", "HOST.fullmatch(given[0])", "HOST.match(given[0])",
        f"{REFUSED}::test_other_hosts_are_refused_on_every_path_and_method"),
    Mutant("any page may ask", "serve/guard.py", "        check_origin([", "        [].append([",
        f"{REFUSED}::test_pages_of_others_are_refused"),
    Mutant("a key that begins right", "serve/guard.py", "hmac.compare_digest(shown.strip(), key.encode())",
        "key.encode().startswith(shown.strip())", f"{REFUSED}::test_every_path_but_health_asks_for_the_key"),
    Mutant("the list of models needs no key", "serve/guard.py", 'OPEN = ("/health",)', 'OPEN = ("/health", "/v1/models")',
        f"{REFUSED}::test_every_path_but_health_asks_for_the_key"),
    Mutant("all addresses are open", "serve/settings.py", "if self.key is None and not is_loopback(self.host):",
        "if False:", f"{REFUSED}::test_other_addresses_ask_for_a_key"),
    Mutant("the key is shown", "serve/settings.py", "field(default=None, repr=False)", "field(default=None)",
        f"{REFUSED}::test_every_path_but_health_asks_for_the_key"),
    Mutant("a body without end", "serve/answers.py", "        if size > most:", "        if size < 0:",
        f"{REFUSED}::test_a_body_beyond_the_limit_is_not_read"),
    Mutant("unknown fields are ignored", "serve/fields.py", "            if name not in known:", "            if name in ():",
        f"{REFUSED}::test_fields_out_of_bounds"),
    Mutant("true is the number 1", "serve/fields.py",
        "if isinstance(value, bool) or not isinstance(value, int | float) or", "if not isinstance(value, int | float) or",
        f"{REFUSED}::test_fields_out_of_bounds"),
    Mutant("the last of two names wins", "serve/fields.py", "if len(found) < len(pairs):", "if False:",
        f"{REFUSED}::test_bodies_that_are_none"),
    Mutant("a client that left is written for", "serve/answers.py", "                    service.runner.cancel(job)\n",
        "                    pass\n", f"{CLIENTS}::test_an_answer_that_takes_too_long"),
    Mutant("nobody looks whether the client is there", "serve/answers.py", "    job.leave()\n", "    pass\n",
        f"{CLIENTS}::test_a_whole_answer_nobody_waits_for_is_not_sent"),
    Mutant("a client that reads nothing is waited for", "serve/answers.py",
        "async with asyncio.timeout(patience):", "async with asyncio.timeout(None):",
        f"{CLIENTS}::test_a_client_that_reads_nothing_is_dropped_and_holds_up_nobody"),
    Mutant("what is not fetched is overwritten", "serve/job.py", "self._ready[number].add(piece)",
        "self._ready[number] = piece", f"{CLIENTS}::test_what_a_slow_client_has_not_read_is_joined"),
    Mutant("a panic ends the model's thread", "serve/runner.py", "except BaseException as error:", "except Exception as error:",
        f"{CLIENTS}::test_a_mistake_inside_is_one_answer_with_a_number[True-Panic]"),
    Mutant("a text that stopped is written on", "serve/runner.py",
        "self.engine.cancel(written.ticket, written.text)", "pass",
        f"{DONE}::test_texts_that_stop_end_no_others"),
    Mutant("while the server ends more is taken", "serve/service.py", "        if self.draining:", "        if False:",
        f"{CLIENTS}::test_draining"),
    Mutant("a drain waits for nobody", "serve/service.py", "        while self._answering:", "        while False:",
        f"{CLIENTS}::test_draining"),
    Mutant("what went wrong is told to strangers", "serve/guard.py", "return broken(number)", "return broken(f\"{number} {error}\")",
        f"{CLIENTS}::test_a_mistake_inside_is_one_answer_with_a_number[True-RuntimeError]"),
    Mutant("special tokens may be asked for", "serve/texts.py", "{**dict(biases), **never}", "{**never, **dict(biases)}",
        f"{DONE}::test_special_tokens_are_never_written"),
    Mutant("each prompt's texts have the same numbers", "serve/texts.py", "first=place * wanted.n", "first=0",
        f"{DONE}::test_drawn_texts_are_those_of_generate"),
    Mutant("echo at each piece", "serve/replies.py", "(self.echoed[number] if first else \"\")", "self.echoed[number]",
        f"{DONE}::test_echo"),
    Mutant("a trickle renews the time", "serve/protocol.py", "            self._expect()\n        else:",
        "            self._relax()\n            self._expect()\n        else:",
        f"{LINE}::test_a_trickle_does_not_renew_the_time"),
    Mutant("a silent connection has all the time", "serve/protocol.py",
        "        super().connection_made(transport)\n        self._expect()",
        "        super().connection_made(transport)", f"{LINE}::test_a_trickle_does_not_renew_the_time"),
    Mutant("what nobody reads is kept", "serve/protocol.py", "            leave = self.transport.abort\n",
        "            pass\n", f"{LINE}::test_what_is_left_unread_is_thrown_away"),
    Mutant("connections without end", "serve/protocol.py", "        if len(self.connections) >= self.most:",
        "        if False:", f"{LINE}::test_a_connection_too_many"),
]
