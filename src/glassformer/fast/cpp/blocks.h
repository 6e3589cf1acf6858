// Blocks as they are told (blocks.py), and how much room and work they take.

#pragma once

#include "maps.h"
#include "rows.h"

namespace glassformer {

// `near` is how many earlier tokens the branch reads by a convolution, whose `shares` are as many vectors.
struct Residual {
    Norm in, out, sum;
    double scale;
    int64_t near;
    const void* shares;
};

// The maps of query, key and value are one after another: their outputs lie side by side. Those with no output are left
// out: key and value if they are joined to the query's, or read another source, a memory, by maps of their own.
struct Attention {
    int64_t heads, kv_heads, width;
    double scale;
    Norm query_norm, key_norm;
    Map inputs[3];
    Map source[2];
    Map output;
};

// `gate` has no output in a plain one.
struct FeedForward {
    int64_t activation;
    Map up, gate, down;
};

// In a `parallel` block, all branches read what enters it.
struct Block {
    int64_t parallel;
    Residual around_own;
    Attention own;
    int64_t crosses;
    Residual around_cross;
    Attention cross;
    Residual around_forward;
    FeedForward forward;
};

// The widest of what is held for each row, and its work.
struct Sizes {
    int64_t projected = 0, remembered = 0, mixed = 0, inner = 0, begun = 0, whole = 0, maps = 0, products = 0;

    void see(const Map& map) {
        whole = std::max(whole, filled(map.in));
        products += map.in * map.out;
        maps += map.out > 0;
    }

    void see(const Attention& of) {
        int64_t all = 0;
        for (const Map& map : of.inputs) {
            all += map.out;
            see(map);
        }
        for (const Map& map : of.source) {
            remembered = std::max(remembered, map.out);
            whole = std::max(whole, filled(map.in));
        }
        see(of.output);
        projected = std::max(projected, all);
        mixed = std::max(mixed, of.output.in);
    }

    void see(const Block& of) {
        see(of.own);
        if (of.crosses) see(of.cross);
        for (const Map* map : {&of.forward.up, &of.forward.gate, &of.forward.down}) see(*map);
        inner = std::max(inner, of.forward.up.out);
        if (of.parallel) begun = of.forward.up.in;
    }
};

}  // namespace glassformer
