"""What was told of a model or a cache may change while C++ runs its steps, and is seen."""

import copy
import weakref
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from fast.natively import given, natively, stepwise
from glassformer.fast import stack as native_stack
from glassformer.nn.slots import Slots
from glassformer.nn.stack import Stack
from specimens import close, model, native_cpp, tokens

pytestmark = native_cpp


@pytest.mark.parametrize("place", ["blocks.0.self_attention", "norm"])
def test_a_hook_may_come_and_go(place, steps):
    ready, ids, seen = natively(model("decoder")), tokens(2, 5), []
    stepwise(ready, ids, (3, 1, 1))
    hook = ready.reader.get_submodule(place).register_forward_hook(lambda *given: seen.append(given))
    stepwise(ready, ids, (3, 1, 1))
    assert (steps, len(seen)) == ([2], 3)
    hook.remove()
    stepwise(ready, ids, (3, 1, 1))
    assert (steps, len(seen)) == ([4], 3)


def test_a_hook_may_come_while_a_text_is_written(steps):
    """Also into a new table of hooks, as some programs make one to remove all."""
    ready, ids, seen = natively(model("decoder")), tokens(2, 5), []
    block = ready.reader.blocks[0]
    with torch.no_grad():
        cache = ready.new_cache()
        for part in ids.split((3, 1, 1), dim=1):
            ready(part, cache=cache)
            if steps == [1] and not seen:
                block._forward_hooks = OrderedDict()
                block.register_forward_hook(lambda *given: seen.append(given))
    assert (steps, len(seen)) == ([1], 1)


def test_a_hook_of_all_modules_may_come_and_go(steps):
    ready, ids, seen = natively(model("decoder")), tokens(2, 5), set()
    stepwise(ready, ids, (3, 1, 1))
    hook = register_module_forward_hook(lambda module, *given: seen.add(module))
    stepwise(ready, ids, (3, 1, 1))
    hook.remove()
    assert steps == [2]
    assert seen.issuperset([*ready.reader.blocks, ready.reader.norm])
    stepwise(ready, ids, (3, 1, 1))
    assert steps == [4]


def test_a_copy_reads_its_own_weights(steps):
    """Also one that is made while the model writes."""
    made, ids = natively(model("decoder")), tokens(2, 5)
    with torch.no_grad():
        cache = made.new_cache()
        before = torch.cat([made(part, cache=cache) for part in ids.split((3, 1, 1), dim=1)], dim=1)
    other = copy.deepcopy(made)
    with torch.no_grad():
        for weight in made.parameters():
            weight.zero_()
    assert torch.equal(stepwise(other, ids, (3, 1, 1)), before)
    assert steps == [4]


def test_a_mask_may_be_given_in_one_step_alone(steps):
    made, ids = model("encoder-decoder"), tokens(2, 5)
    memory, keep = given(made)["memory"], torch.ones(2, 5, dtype=torch.bool)
    keep[1, 2:] = False

    def read(made):
        cache, keeps = made.new_cache(), (None, keep, None)
        parts = zip(ids.split((3, 1, 1), dim=1), keeps, strict=True)
        with torch.no_grad():
            return [made(part, memory=memory, source_keep=each, cache=cache) for part, each in parts]

    for found, expected in zip(read(natively(made)), read(made), strict=True):
        close(found, expected)
    assert steps == [2]


def test_weights_and_parts_that_were_exchanged_are_read(steps):
    """Each cache has a description of its own."""
    ready, ids = natively(model("decoder").float()), tokens(2, 5)
    ready = ready.double()
    blocks = ready.reader.blocks

    def agree():
        with torch.no_grad():
            close(stepwise(ready, ids, (3, 1, 1)), ready(ids))

    agree()
    blocks[0].feed_forward.branch.up.weight.data = torch.randn_like(blocks[0].feed_forward.branch.up.weight)
    agree()
    blocks[1] = copy.deepcopy(blocks[0])
    agree()
    blocks[1].self_attention.branch.scale = 0.9
    agree()
    assert steps == [8]


def test_weights_exchanged_while_texts_come_and_go_are_read():
    """A prompt is read with the new weights; so are the steps of the texts that it joins."""
    ready, ids = natively(model("decoder")), tokens(2, 6)
    slots = Slots(2, most_rows=2)

    def take(row):
        prompts = ready.new_cache()
        ready(ids[row : row + 1, :3], cache=prompts)
        slots.take(prompts, [0], [3], 6)

    with torch.no_grad():
        take(0)
        ready(ids[:1, 3:4], cache=slots)
        up = ready.reader.blocks[0].feed_forward.branch.up
        up.weight = nn.Parameter(torch.randn_like(up.weight))
        take(1)
        found = ready(torch.stack([ids[0, 4:5], ids[1, 3:4]]), cache=slots)
        ready.reader.__class__ = Stack
        close(found[1], ready(ids[1:, :4])[0, 3:])


def test_what_changes_before_a_text_that_begins_elsewhere_is_seen(monkeypatch, steps):
    """A long prompt is read by the modules, and C++ goes on with it: with new weights, and if nothing drops."""
    monkeypatch.setattr(native_stack, "LONG", 16)
    ready, ids = natively(model("decoder", dropout=0.5)), tokens(2, 8)
    stepwise(ready, ids[:, :5], (3, 1, 1))
    up = ready.reader.blocks[0].feed_forward.branch.up
    up.weight = nn.Parameter(torch.randn_like(up.weight))
    found = stepwise(ready, ids, (6, 1, 1))
    assert steps == [4]
    with torch.no_grad():
        close(found, by_its_modules(ready)(ids))
    ready.reader.blocks[0].feed_forward.dropout.train()
    first, second = stepwise(ready, ids, (6, 1, 1)), stepwise(ready, ids, (6, 1, 1))
    assert not torch.allclose(first[:, -1], second[:, -1])
    assert steps == [4]


def by_its_modules(ready):
    """A copy that C++ does not run."""
    made = copy.deepcopy(ready)
    made.reader.__class__ = Stack
    return made


def test_two_caches_by_turns_are_told_apart():
    ready, ids = natively(model("decoder")), tokens(2, 5)
    with torch.no_grad():
        caches, whole = [ready.new_cache(), ready.new_cache()], ready(ids)
        for row, cache in enumerate(caches):
            ready(ids[row : row + 1, :3], cache=cache)
        for at in (3, 4):
            for row, cache in enumerate(caches):
                close(ready(ids[row : row + 1, at : at + 1], cache=cache)[0, 0], whole[row, at])


def test_a_cache_that_moves_leaves_its_old_room():
    ready, ids = natively(model("decoder")), tokens(2, 9)
    with torch.no_grad():
        cache = ready.new_cache()
        for part in ids[:, :5].split((3, 1, 1), dim=1):
            ready(part, cache=cache)
        old = [weakref.ref(each) for layer in cache.layers for each in layer.buffers]
        cache.select(torch.tensor([1]))
        assert not any(each() is not None for each in old)


def test_another_thread_may_run_a_step_at_the_same_time(monkeypatch):
    """While C++ computes, the other thread has its turn: here, before the call itself."""
    ready, ids = natively(model("encoder-decoder")), tokens(2, 4)
    memory = given(ready)
    own, call = ready.new_cache(), native_stack.function(torch.float64)
    other = ready.new_cache()

    def interrupted(*arguments):
        monkeypatch.undo()
        running = ready.reader.running
        places = [weakref.ref(running.own), weakref.ref(running.cross)]
        ready(ids[1:, 3:], cache=other, memory=memory["memory"][1:])
        assert running.own is not places[0]()
        assert all(each() is not None for each in places)
        call(*arguments)

    with torch.no_grad():
        for row, cache in enumerate((own, other)):
            ready(ids[row : row + 1, :3], cache=cache, memory=memory["memory"][row : row + 1])
        monkeypatch.setattr(native_stack, "function", lambda dtype: interrupted)
        found = ready(ids[:1, 3:], cache=own, memory=memory["memory"][:1])
        close(found, ready(ids, **memory)[:1, 3:])
