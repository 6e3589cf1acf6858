"""Stacks, encoders of ids and encoder-decoders as learners write them, in two styles, with mistakes planted in each."""

from __future__ import annotations

from proof.course_blocks import BRANCHES, LAYER
from proof.learners import ENCODING
from proof.parts import Part

BLOCK = (
    BRANCHES
    + """
class EncoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, norm_first=False, dropout=0.1):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.norm_first, self.dropout = norm_first, nn.Dropout(dropout)

    def forward(self, x, mask=None):
        if self.norm_first:
            y = self.norm1(x)
            x = x + self.dropout(self.attention(y, y, y, mask))
            return x + self.dropout(self.down(torch.relu(self.up(self.norm2(x)))))
        x = self.norm1(x + self.dropout(self.attention(x, x, x, mask)))
        return self.norm2(x + self.dropout(self.down(torch.relu(self.up(x)))))
"""
)
ENCODER = (
    BLOCK
    + ENCODING
    + """
class TokenEncoder(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, n_layers, d_ff, max_len, n_outputs=None, dropout=0.1):
        super().__init__()
        self.table, self.factor = nn.Embedding(vocab_size, d_model), math.sqrt(d_model)
        self.positions = PositionalEncoding(d_model, max_len)
        self.blocks = nn.ModuleList([EncoderBlock(d_model, n_heads, d_ff) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.output = nn.Identity() if n_outputs is None else nn.Linear(d_model, n_outputs)
        nn.init.normal_(self.table.weight, std=d_model ** -0.5)

    def forward(self, ids, mask=None):
        x = self.positions(self.table(ids) * self.factor)
        for block in self.blocks:
            x = block(x, mask)
        return self.output(self.norm(x))
"""
)
LISTED = "[EncoderBlock(d_model, n_heads, d_ff) for _ in range(n_layers)]"
MADE = f"nn.ModuleList({LISTED})"
LOOP = "        for block in self.blocks:\n            x = block(x, mask)\n"
ENTERS = "self.positions(self.table(ids) * self.factor)"

IDS = (
    LAYER.replace("DecoderLayer", "Layer")
    .split("    def forward")[0]
    .replace(
        "        self.query, self.pair = nn.Linear(d_model, d_model), nn.Linear(d_model, 2 * d_model)\n"
        "        self.joined = nn.Linear(d_model, d_model)\n",
        "",
    )
    .replace(", self.ln_3", "")
    .replace("nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.L", "nn.LayerNorm(d_model), nn.L")
    + """
    def forward(self, x, keep):
        x = x + self.attend(*self.qkv(self.ln_1(x)).chunk(3, -1), keep, self.out)
        return x + self.ffn(self.ln_2(x))

class TransformerEncoder(nn.Module):
    def __init__(self, vocab_size, embed_dim, num_heads, num_layers, ff_dim, max_length=64, num_classes=None):
        super().__init__()
        self.token, self.place = nn.Embedding(vocab_size, embed_dim), nn.Embedding(max_length, embed_dim)
        self.drop = nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer(embed_dim, num_heads, ff_dim) for _ in range(num_layers))
        self.final = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, num_classes or vocab_size)

    def forward(self, tokens, attention_mask=None):
        keep = None if attention_mask is None else attention_mask[:, None, None]
        x = self.drop(self.token(tokens) + self.place(torch.arange(tokens.size(1))))
        for layer in self.layers:
            x = layer(x, keep)
        return self.head(self.final(x))
"""
)

STACKED = (
    IDS.split("class TransformerEncoder")[0]
    + """
class Encoder(nn.Module):
    def __init__(self, num_layers, dim, heads, ff_dim):
        super().__init__()
        self.layers = nn.ModuleList(Layer(dim, heads, ff_dim) for _ in range(num_layers))
        self.final = nn.LayerNorm(dim)

    def forward(self, x, keep=None):
        for layer in self.layers:
            x = layer(x, keep)
        return self.final(x)
"""
)

WHOLE = (
    ENCODER
    + """
class Transformer(nn.Module):
    def __init__(self, source_vocab, target_vocab, d_model, n_heads, n_layers, d_ff, max_len, dropout=0.1):
        super().__init__()
        self.encoder = TokenEncoder(source_vocab, d_model, n_heads, n_layers, d_ff, max_len)
        self.table, self.factor = nn.Embedding(target_vocab, d_model), math.sqrt(d_model)
        nn.init.normal_(self.table.weight, std=d_model ** -0.5)
        self.positions = PositionalEncoding(d_model, max_len)
        self.decoder = nn.ModuleList([DecoderBlock(d_model, n_heads, d_ff) for _ in range(n_layers)])
        self.output = nn.Linear(d_model, target_vocab)

    def encode(self, source, source_keep=None):
        return self.encoder(source, wide(source_keep))

    def decode(self, target, memory, source_keep=None):
        x = self.positions(self.table(target) * self.factor)
        mask = torch.ones(target.size(1), target.size(1), dtype=torch.bool).tril()
        for block in self.decoder:
            x = block(x, memory, mask, wide(source_keep))
        return self.output(x)

    def forward(self, source, target, source_keep=None):
        memory = self.encode(source, source_keep)
        return self.decode(target, memory, source_keep)


def wide(keep):
    return None if keep is None else keep[:, None, None, :]

Transformer = Transformer
"""
)
WHOLE = WHOLE.replace("\n\nTransformer = Transformer\n", "\n")
HELPER = "\n\ndef wide(keep):\n    return None if keep is None else keep[:, None, None, :]\n"
WHOLE = HELPER + WHOLE.replace(HELPER, "")
DECODES = "x = block(x, memory, mask, wide(source_keep))"
TABLES = "self.table, self.factor = nn.Embedding(target_vocab, d_model), math.sqrt(d_model)"
ONE_TABLE = "self.table, self.factor = self.encoder.table, math.sqrt(d_model)"

SEQ = (
    LAYER
    + IDS.split("from torch import nn\n")[1].split("class TransformerEncoder")[0]
    + """
class Seq2Seq(nn.Module):
    def __init__(self, src_vocab, tgt_vocab, d_model=256, n_heads=8, n_encoder_layers=3, n_decoder_layers=3, d_ff=512):
        super().__init__()
        self.src_embed, self.tgt_embed = nn.Embedding(src_vocab, d_model), nn.Embedding(tgt_vocab, d_model)
        self.place, self.width = nn.Embedding(50, d_model), d_model
        self.encoder_layers = nn.ModuleList([Layer(d_model, n_heads, d_ff) for _ in range(n_encoder_layers)])
        self.decoder_layers = nn.ModuleList([DecoderLayer(d_model, n_heads, d_ff) for _ in range(n_decoder_layers)])
        self.first, self.last = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.output_proj = nn.Linear(d_model, tgt_vocab)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def placed(self, table, ids):
        return table(ids) * self.width ** 0.5 + self.place(torch.arange(ids.size(1)))

    def encode(self, src, src_mask=None):
        x = self.placed(self.src_embed, src)
        for layer in self.encoder_layers:
            x = layer(x, src_mask)
        return self.first(x)

    def decode(self, tgt, enc_output, src_mask=None, tgt_mask=None):
        x = self.placed(self.tgt_embed, tgt)
        for layer in self.decoder_layers:
            x = layer(x, enc_output, tgt_mask, src_mask)
        return self.last(x)

    def forward(self, src, tgt, src_mask=None, tgt_mask=None):
        return self.output_proj(self.decode(tgt, self.encode(src, src_mask), src_mask, tgt_mask))
"""
)

PARTS = [
    Part("TransformerEncoder", "fused maps, pre-norm", STACKED, [
        ("the final norm is missing", "return self.final(x)", "return x", "        self.final = nn.LayerNorm(dim)\n",
         ""),
        ("the layers are not registered", "nn.ModuleList(Layer(dim, heads, ff_dim) for _ in range(num_layers))",
         "[Layer(dim, heads, ff_dim) for _ in range(num_layers)]"),
        ("the layers are the same module", "Layer(dim, heads, ff_dim) for _ in range(num_layers)",
         "[Layer(dim, heads, ff_dim)] * num_layers"),
        ("some layers are not run", "in self.layers:", "in self.layers[:1]:"),
        ("some layers are not run", "x = layer(x, keep)", "y = layer(x, keep)", "return self.final(x)",
         "return self.final(y)"),
        ("the mask is ignored", "x = layer(x, keep)", "x = layer(x, None)"),
    ]),
    Part("TokenEncoder", "from parts, post-norm", ENCODER, [
        ("the order of the tokens is not seen", ENTERS, "self.table(ids) * self.factor"),
        ("positions are scaled too", ENTERS, "self.positions(self.table(ids)) * self.factor"),
        ("positions are added in every layer", "x = block(x, mask)", "x = block(self.positions(x), mask)", ENTERS,
         "self.table(ids) * self.factor"),
        ("positions are added in every layer", "x = block(x, mask)", "x = self.positions(block(x, mask))"),
        ("the mask stops at the first layer", "x = block(x, mask)", "x, mask = block(x, mask), None"),
        ("the mask is ignored", "x = block(x, mask)", "x = block(x)"),
        ("the mask is inverted", "x = block(x, mask)", "x = block(x, None if mask is None else ~mask)"),
        ("the layers are the same module", LISTED, "[EncoderBlock(d_model, n_heads, d_ff)] * n_layers"),
        ("the layers start identical", LISTED,
         "[__import__('copy').deepcopy(b) for b in [EncoderBlock(d_model, n_heads, d_ff)] * n_layers]"),
        ("some layers are not run", "in self.blocks:", "in self.blocks[:1]:"),
        ("some layers are not run", LOOP, LOOP.replace("x = block", "y = block") + "        x = y\n"),
        ("the layers are not registered", MADE, LISTED),
        ("dropout is active in evaluation", ENTERS, f"nn.functional.dropout({ENTERS}, 0.1)"),
        ("rows of the batch are mixed", ENTERS, f"{ENTERS}; x = x - x.mean(0)"),
        ("the final norm is missing", "(d_model, n_heads, d_ff) for", "(d_model, n_heads, d_ff, True) for",
         "self.output(self.norm(x))", "self.output(x)", "        self.norm = nn.LayerNorm(d_model)\n", ""),
        ("the head starts too large", "        nn.init.normal_(self.table.weight",
         "        if n_outputs:\n            nn.init.normal_(self.output.weight)\n"
         "        nn.init.normal_(self.table.weight"),
        ("the output has the wrong shape", "self.output(self.norm(x))", "self.output(self.norm(x)).mean(1)"),
    ]),
    Part("TokenEncoder", "learned positions, fused maps, logits", IDS, [
        ("the order of the tokens is not seen", " + self.place(torch.arange(tokens.size(1)))",
         " + self.place(torch.zeros_like(tokens))"),
        ("positions are added in every layer", "x = layer(x, keep)",
         "x = layer(x, keep) + self.place(torch.arange(tokens.size(1)))"),
        ("the mask stops at the first layer", "x = layer(x, keep)", "x, keep = layer(x, keep), None"),
        ("the mask is ignored", "x = layer(x, keep)", "x = layer(x, None)"),
        ("some layers are not run", "in self.layers:", "in self.layers[1:]:"),
        ("the final norm is missing", "self.head(self.final(x))", "self.head(x)",
         "        self.final = nn.LayerNorm(embed_dim)\n", ""),
        ("dropout is active in evaluation", "self.drop(", "nn.functional.dropout("),
    ]),
    Part("Transformer", "from parts, post-norm", WHOLE, [
        ("queries read the future", "memory, mask, wide", "memory, None, wide"),
        ("off by one: a query may read the next token", ".tril()\n        for", ".tril(1)\n        for"),
        ("the source changes nothing", DECODES, "x = block(x, x, mask)"),
        ("rows of the batch are mixed", DECODES,
         "x = block(x, memory[:1].expand(memory.shape), mask, wide(source_keep))"),
        ("the order of the source is not seen", ENTERS, "self.table(ids) * self.factor"),
        ("the order of the tokens is not seen", "self.positions(self.table(target) * self.factor)",
         "self.table(target) * self.factor"),
        ("one embedding serves two vocabularies", TABLES, ONE_TABLE),
        ("some layers are not run", "return self.encoder(source, wide(source_keep))",
         "return self.encoder.norm(self.encoder.positions(self.encoder.table(source)))"),
        ("some layers are not run", "for block in self.decoder:", "for block in self.decoder[:1]:"),
        ("the output has the wrong shape", "nn.Linear(d_model, target_vocab)", "nn.Linear(d_model, source_vocab)"),
        ("the head starts too large", "        self.output = nn.Linear(d_model, target_vocab)",
         "        self.output = nn.Linear(d_model, target_vocab)\n        nn.init.normal_(self.output.weight)"),
        ("the layers are not registered",
         "nn.ModuleList([DecoderBlock(d_model, n_heads, d_ff) for _ in range(n_layers)])",
         "[DecoderBlock(d_model, n_heads, d_ff) for _ in range(n_layers)]"),
        ("the layers are the same module", "[DecoderBlock(d_model, n_heads, d_ff) for _ in range(n_layers)]",
         "[DecoderBlock(d_model, n_heads, d_ff)] * n_layers", LISTED,
         "[EncoderBlock(d_model, n_heads, d_ff)] * n_layers"),
        ("dropout is active in evaluation", "return self.output(x)", "return self.output(nn.functional.dropout(x))"),
        ("forward and decode differ", "return self.decode(target, memory, source_keep)",
         "return 2 * self.decode(target, memory, source_keep)"),
        ("n_heads changes nothing", "n_heads, d_model // n_heads, d_model", "2, d_model // 2, d_model"),
        ("padding is read in the encoder", "self.encoder(source, wide(source_keep))", "self.encoder(source)"),
        ("padding is read in the cross-attention", "x = block(x, memory, mask, wide(source_keep))",
         "x = block(x, memory, mask)"),
        ("queries read the future", DECODES,
         "x = block(x, memory, mask if source_keep is None else wide(source_keep), wide(source_keep))"),
        ("the mask is inverted", "keep[:, None, None, :]", "~keep[:, None, None, :]"),
        ("a padding mask is not applied to each row of the batch", "keep[:, None, None, :]",
         "keep[:1, None, None, :]"),
        ("a mask makes it fail", "keep[:, None, None, :]", "keep"),
    ]),
    Part("Transformer", "with its masks given", SEQ, [
        ("queries read the future", "enc_output, tgt_mask, src_mask", "enc_output, None, src_mask"),
        ("the source changes nothing", "layer(x, enc_output,", "layer(x, x,",
         "tgt_mask, src_mask)\n        return self.last", "tgt_mask, None)\n        return self.last"),
        ("the order of the tokens is not seen", "self.placed(self.tgt_embed, tgt)", "self.tgt_embed(tgt)"),
        ("the order of the source is not seen", "self.placed(self.src_embed, src)", "self.src_embed(src)"),
        ("padding is read in the encoder", "x = layer(x, src_mask)", "x = layer(x, None)"),
        ("padding is read in the cross-attention", "enc_output, tgt_mask, src_mask)", "enc_output, tgt_mask, None)"),
        ("some layers are not run", "return self.first(x)", "return self.first(self.src_embed(src))"),
        ("one embedding serves two vocabularies", "self.placed(self.tgt_embed", "self.placed(self.src_embed",
         "        for p in self.par", "        del self.tgt_embed\n        for p in self.par"),
        ("the output has the wrong shape", "nn.Linear(d_model, tgt_vocab)", "nn.Linear(d_model, src_vocab)"),
        ("the head starts too large", "nn.init.xavier_uniform_(p)", "nn.init.normal_(p)"),
    ]),
]  # fmt: skip
