"""Mistakes planted in the code of learners_models.py: (the name that must be given, text, text instead)."""

from __future__ import annotations

STD, TIE = "nn.init.normal_(self.token.weight, std=0.02)", "self.head.weight = self.token.weight"
START = "start = 0 if cache is None else cache[0][0].size(2)"
KEPT = "k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)"
MODEL = [
    ("the tied embedding starts too large", STD, "pass"),
    ("the head starts too large", TIE, "nn.init.normal_(self.head.weight)"),
    ("queries read the future", ".tril(S - T)", ""),
    ("off by one: a query may read the next token", ".tril(S - T)", ".tril(S - T + 1)"),
    ("the order of the tokens is not seen", "self.token(tokens) + self.position(places)", "self.token(tokens)"),
    ("positions begin again at 0 in a cached step", START, "start = 0"),
    ("the mask of a cached step counts from the first key", ".tril(S - T)", ".tril()"),
    ("the mask of a cached step counts from the first key", ".tril(S - T)", ".tril(S if T == 1 else 0)"),
    ("the cache is not read", "if past is not None:", "if False:"),
    ("a cached step differs from one forward pass", KEPT,
     "k, v = torch.cat([k, past[0]], 2), torch.cat([past[1], v], 2)"),
    ("a cached step differs from one forward pass", KEPT,
     "k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)"),
    ("dropout is active in evaluation", "self.dropout(self", "nn.functional.dropout(self"),
    ("rows of the batch are mixed", "(weights @ v)", "(weights @ v.flip(0))"),
    ("the output has the wrong shape", "self.head(self.norm(x))", "self.norm(x)"),
]  # fmt: skip

OTHER = "torch.stack([-second, first], -1).flatten(-2)"
HALVES = "torch.cat([-x[..., x.size(-1) // 2 :], x[..., : x.size(-1) // 2]], -1)"
ROTARY = [
    ("two layouts are mixed", OTHER, HALVES),
    ("two layouts are mixed", "angles.sin().repeat_interleave(2, -1), angles.cos().repeat_interleave(2, -1)",
     "torch.cat([angles, angles], -1).sin(), torch.cat([angles, angles], -1).cos()"),
    ("the positions given are ignored", "positions[:, None]", "torch.arange(x.size(-2))[:, None]"),
    ("positions are off by one", "positions[:, None]", "(positions[:, None] + 1)"),
    ("the exponent is wrong", "2) / x.size(-1)", "2) / (x.size(-1) // 2)"),
    ("the exponent is wrong", "torch.arange(0, x.size(-1), 2)", "torch.arange(x.size(-1) // 2)"),
    ("the base is not 10,000", "10000.0", "1000.0"),
    ("the rotation goes the wrong way", "[-second, first]", "[second, -first]"),
    ("sine and cosine are swapped", "sin, cos =", "cos, sin ="),
    ("the result is not the documented one", "+ other * sin", "+ other"),
]  # fmt: skip

DOCUMENT_MASK = [
    ("documents read each other", "same & ", "(same | True) & "),
    ("queries read the future", "(same & torch.ones(n, n).tril().bool())", "same"),
    ("documents are compared by their order", "==", ">="),
    ("documents are compared by their order", "==", "<="),
    ("off by one: a query may not read itself", ".tril()", ".tril(-1)"),
    ("off by one: a query may read the next token", ".tril()", ".tril(1)"),
    ("the mask is inverted", "return (", "return ~("),
    ("one row's documents are used for all", "n = documents.size(1)",
     "n = documents.size(1); documents = documents[:1].expand(documents.shape)"),
    ("the mask holds numbers instead of True and False", ".unsqueeze(1)", ".float().unsqueeze(1)"),
    ("the mask has the wrong shape", ".unsqueeze(1)", "[0]"),
]  # fmt: skip

COUNT = "keep.long().cumsum(1) - 1"
POSITION_IDS = [
    ("padding is counted as positions", COUNT, "keep.long() * 0 + __import__('torch').arange(keep.size(1))"),
    ("positions are off by one", COUNT, "keep.long().cumsum(1)"),
    ("positions run along the batch", "cumsum(1)", "cumsum(0)"),
    ("padding is counted instead of the tokens", f"({COUNT})", "(~keep).long().cumsum(1)"),
    ("padding gets a position that no table has", ".clamp(min=0)", ""),
    ("the result is not the documented one", COUNT, "keep.long().flip(1).cumsum(1) - 1"),
]

START_ID = "torch.full_like(labels[:, :1], start_id)"
WHOLE = "torch.cat([start, labels[:, :-1]], dim=1)"
SHIFT_RIGHT = [
    ("the decoder reads the token that it must predict", WHOLE, "labels"),
    ("labels are shifted the wrong way", WHOLE, "torch.cat([labels[:, 1:], start], dim=1)"),
    ("decoding starts from another token than training", WHOLE, "labels.roll(1, 1)"),
    ("decoding starts from another token than training", START_ID, "torch.zeros_like(labels[:, :1])"),
    ("decoding starts from another token than training", START_ID, "labels[:, :1]"),
    ("the last label is kept", "labels[:, :-1]]", "labels]"),
    ("the result is not the documented one", WHOLE, "start + labels"),
]

TRANSLATE = [
    ("decoding starts from another token than training", "[[bos_id]]", "[[eos_id]]"),
    ("decoding starts from another token than training", "[[bos_id]]", "[[0]]"),
    ("decoding starts from another token than training", "torch.tensor([[bos_id]])", "source[:, -1:]"),
    ("decoding starts from another token than training", "torch.tensor([[bos_id]])", "source"),
    ("the source does not reach the model", "model(source, target)", "model(target, target)"),
    ("it does not stop at the end token", "break", "pass"),
    ("the limit is off by one", "range(max_new_tokens)", "range(max_new_tokens - 1)"),
    ("the model is given the last token alone", "(source, target)", "(source, target[:, -1:])"),
    ("the prompt is missing from the result", "return target", "return target[:, 1:]"),
    ("the end token is missing from the result", "return target", "return target[:, :-1]"),
    ("dropout is active in evaluation", "    model.eval()\n", ""),
    ("the model stays in evaluation mode", "    model.train(was)\n", ""),
    ("the result is not a row of ids", "return target", "target"),
]

PLANTED = {
    "LanguageModel": MODEL, "apply_rotary": ROTARY, "document_mask": DOCUMENT_MASK, "position_ids": POSITION_IDS,
    "shift_right": SHIFT_RIGHT, "greedy_translate": TRANSLATE,
}  # fmt: skip
