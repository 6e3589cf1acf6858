// Texts on their way through all blocks and the last norm: what `Block`, `Residual`, `Attention`, `FeedForward` and the
// norms compute (block.py, residual.py, attention.py, feed_forward.py, norm.py).
//
// All members of a team go through every function together, and share the work of each loop.

#pragma once

#include "blocks.h"
#include "keys.h"

namespace glassformer {

constexpr int64_t PHASES = 46;  // of a block, at the most: three branches of up to twelve, five for a memory, two for
                                // each of two convolutions, and one to keep what enters it

// Some texts on their way through the blocks, and room for what these compute. Each of `rows` is a token, `tokens` of
// each text one after another; `first` is the first text among all. A member's `weights` are its own.
template <typename T>
struct Texts {
    int64_t first, rows, tokens, width;
    Rotation rotation;
    Keys own, cross;
    Nearby nearby;
    T *x, *normed, *projected, *remembered, *mixed, *inner, *gate, *added, *begun;
    const Rounded& rounded;

    template <typename After>
    void attention(Member& member, const Attention& of, const Keys& keys, int64_t block, T* weights, const T* from,
                   After after);
    template <typename After>
    void feed_forward(Member& member, const FeedForward& of, const T* from, After after);

    // How far apart the projections of two rows lie: of queries, and of keys and values too if the keys are `fresh`.
    static int64_t apart(const Attention& of, bool fresh) {
        return spread<T>((of.heads + (fresh ? 2 * of.kv_heads : 0)) * of.width);
    }

    // Calls work(row's numbers in the residual stream, where they begin).
    template <typename Work>
    void each_row(Member& member, Work work) {
        member.share(rows, [&](int64_t row, int64_t end) {
            for (; row < end; ++row) work(x + row * width, row * width);
        });
    }

    // norm_sum(scale x + norm_out(branch(convolution(norm_in(reads))))); `layer` is that of what a convolution reads.
    // Branches write to `added`. A single row is normalised by each member for itself, which takes less than waiting.
    // Whoever is late may read what others have gone on to write, but finds nothing left to do with it; so each has a
    // row of `normed` for itself, behind the one in common.
    template <typename Branch>
    void residual(Member& member, const Residual& around, const T* reads, int64_t layer, Branch branch) {
        const bool alone = rows == 1 && !around.near, adds = around.out.kind == NOTHING && around.sum.kind == NOTHING;
        T* from = normed + (alone ? (1 + member.number) * width : 0);
        if (alone)
            normalise(around.in, reads, from, width);
        else
            each_row(member, [&](T*, int64_t at) { normalise(around.in, reads + at, from + at, width); });
        if (around.near) convolve(member, around, layer);
        const auto add = [&](int64_t row, int64_t first, int64_t last) {
            T *here = x + row * width, *new_here = added + row * spread<T>(width);
            for (int64_t i = first; i < last; ++i) here[i] = here[i] * T(around.scale) + new_here[i];
        };
        branch(from, [&](int64_t row, int64_t end, int64_t first, int64_t last) {
            for (; adds && row < end; ++row) add(row, first, last);
        });
        if (adds) return;
        each_row(member, [&](T* here, int64_t at) {
            const int64_t row = at / width;
            T* new_here = added + row * spread<T>(width);
            if (around.out.kind != NOTHING) normalise(around.out, new_here, new_here, width);
            add(row, 0, width);
            if (around.sum.kind != NOTHING) normalise(around.sum, here, here, width);
        });
    }

    void block(Member& member, const Block& of, int64_t number, T* weights) {
        const int64_t layer = 2 * number;
        const T* reads = of.parallel ? begun : x;
        if (of.parallel)
            each_row(member, [&](T* here, int64_t at) { std::copy(here, here + width, begun + at); });
        residual(member, of.around_own, reads, layer, [&](const T* from, auto after) {
            attention(member, of.own, own, number, weights, from, after);
        });
        if (of.crosses)
            residual(member, of.around_cross, reads, layer, [&](const T* from, auto after) {
                attention(member, of.cross, cross, number, weights, from, after);
            });
        residual(member, of.around_forward, reads, layer + 1, [&](const T* from, auto after) {
            feed_forward(member, of.forward, from, after);
        });
    }

    void convolve(Member& member, const Residual& around, int64_t layer);

    template <typename Number>
    Held<Number> held(const Attention& of, const Keys& keys, int64_t block, int64_t text, int64_t group);
    template <typename Number>
    void take(const Attention& of, const Keys& keys, int64_t row, int64_t group, const Held<Number>& held);
    template <typename Number>
    void remember(Member& member, const Attention& of, const Keys& keys, int64_t block);
    template <typename Number>
    void read(const Attention& of, const Keys& keys, int64_t row, int64_t group, const Held<Number>& held, T* weights);
};

// Puts each vector where later tokens find it, and adds to it the shares of those before it.
template <typename T>
void Texts<T>::convolve(Member& member, const Residual& around, int64_t layer) {
    const bool cached = nearby.layers;  // without a cache there is room where the branch will write what it adds
    const Lie lie = cached ? nearby.lie : Lie{tokens * width, 0, width};
    T* kept = cached ? (T*)nearby.layers[layer] : added;
    const auto place = [&](int64_t row, int64_t column) {
        const int64_t text = row / tokens;
        return kept + lie.at(cached ? nearby.of(first + text).at(column) : text, 0, column);
    };
    each_row(member, [&](T*, int64_t at) {
        const int64_t row = at / width;
        T* to = place(row, nearby.column(first * tokens + row, row % tokens));
        for (int64_t i = 0; i < width; ++i) to[i] = normed[at + i];
    });
    each_row(member, [&](T*, int64_t at) {
        const int64_t row = at / width;
        const auto* shares = (const T*)around.shares;
        for (int64_t back = 0; back < around.near; ++back, shares += width) {
            const int64_t column = nearby.columns[back * nearby.rows + first * tokens + row];
            if (column < 0) continue;
            const T* from = place(row, column);
            for (int64_t i = 0; i < width; ++i) normed[at + i] += shares[i] * from[i];
        }
    });
}

// The keys and values that the heads of a group share in one text: in a cache, or those of the tokens where they are.
template <typename T>
template <typename Number>
Held<Number> Texts<T>::held(const Attention& of, const Keys& keys, int64_t block, int64_t text, int64_t group) {
    const auto steps = [=](float* const* layers) { return layers ? layers[block] : nullptr; };
    const Indirection of_text = keys.of(text);
    if (keys.k)
        return {Vectors<Number>(keys.k[block], steps(keys.k_step), keys.keys, keys.key_steps, of_text, group),
                Vectors<Number>(keys.v[block], steps(keys.v_step), keys.values, keys.value_steps, of_text, group)};
    const int64_t K = of.width, all = apart(of, true);
    const Lie here{tokens * all, K, all};
    return {Vectors<Number>(projected + of.heads * K, nullptr, here, {}, {text - first}, group),
            Vectors<Number>(projected + (of.heads + of.kv_heads) * K, nullptr, here, {}, {text - first}, group)};
}

// Makes the new key and value of one row, and puts them into the cache.
template <typename T>
template <typename Number>
void Texts<T>::take(const Attention& of, const Keys& keys, int64_t row, int64_t group, const Held<Number>& held) {
    const int64_t K = of.width;
    T* new_k = projected + row * apart(of, true) + (of.heads + group) * K;
    if (of.key_norm.kind != NOTHING) normalise(of.key_norm, new_k, new_k, K);
    rotate(rotation, first * tokens + row, new_k);
    if (!keys.k) return;
    const int64_t column = keys.column(first * tokens + row, row % tokens, tokens);
    put(held.k, column, new_k, K);
    put(held.v, column, new_k + of.kv_heads * K, K);
}

// Makes the keys and values of a memory, and puts them into the cache.
template <typename T>
template <typename Number>
void Texts<T>::remember(Member& member, const Attention& of, const Keys& keys, int64_t block) {
    const int64_t K = of.width, G = of.kv_heads, S = keys.length, there = rows / tokens * S, in = of.source[0].in;
    const T* memory = (const T*)keys.memory + first * S * in;
    const int64_t apart = spread<T>(G * K);
    T* new_v = remembered + there * apart;
    apply(member, of.source[0], memory, in, remembered, apart, there, rounded);
    apply(member, of.source[1], memory, in, new_v, apart, there, rounded);
    member.share(there * G, [&](int64_t i, int64_t end) {
        for (; i < end; ++i) {
            const Held<Number> to = held<Number>(of, keys, block, first + i / (S * G), i % G);
            const int64_t at = i / G * apart + i % G * K;
            T* new_k = remembered + at;
            if (of.key_norm.kind != NOTHING) normalise(of.key_norm, new_k, new_k, K);
            put(to.k, i / G % S, new_k, K);
            put(to.v, i / G % S, new_v + at, K);
        }
    });
}

// The attention of one row's heads that share keys and values.
template <typename T>
template <typename Number>
void Texts<T>::read(const Attention& of, const Keys& keys, int64_t row, int64_t group, const Held<Number>& held,
                   T* weights) {
    const int64_t K = of.width, shared = of.heads / of.kv_heads, text = first + row / tokens, token = row % tokens;
    const int64_t all = apart(of, keys.fresh);
    for (int64_t head = group * shared; head < (group + 1) * shared; ++head) {
        T *q = projected + row * all + head * K, *to = mixed + (row * of.heads + head) * K;
        if (of.query_norm.kind != NOTHING) normalise(of.query_norm, q, q, K);
        if (keys.fresh) rotate(rotation, first * tokens + row, q);
        if (keys.blind && keys.blind[keys.blind_at.at(text, head, token)]) {
            for (int64_t i = 0; i < K; ++i) to[i] = 0;
            continue;
        }
        for (int64_t i = 0; i < K; ++i) q[i] *= T(of.scale);
        const auto* added_here = (const T*)keys.added;
        if (added_here) added_here += keys.added_at.at(text, head, token);
        const int64_t later = keys.causal ? tokens - 1 - token : 0;
        attend(q, held.k, held.v, added_here, keys.length - later, K, weights, to);
    }
}

template <typename T>
template <typename After>
void Texts<T>::attention(Member& member, const Attention& of, const Keys& keys, int64_t block, T* weights,
                         const T* from, After after) {
    int64_t first_output = 0;
    for (const Map& map : of.inputs) {
        if (map.out)
            apply(member, map, from, width, projected + first_output, apart(of, keys.fresh), rows, rounded);
        first_output += map.out;
    }
    const auto each = [&](auto number, bool takes, bool reads) {
        member.share(rows * of.kv_heads, [&](int64_t i, int64_t end) {
            for (; i < end; ++i) {
                const int64_t row = i / of.kv_heads, group = i % of.kv_heads;
                const auto there = held<decltype(number)>(of, keys, block, first + row / tokens, group);
                if (takes) take(of, keys, row, group, there);
                if (reads) read(of, keys, row, group, there, weights);
            }
        }, tokens > 1 ? MANY_PIECES : PIECES);  // a later token reads more keys
    };
    const auto all_of_them = [&](auto number) {
        if (keys.memory) remember<decltype(number)>(member, of, keys, block);
        const bool before = keys.fresh && tokens > 1;  // a token reads what others of its text have put
        if (before) each(number, true, false);
        each(number, keys.fresh && !before, true);
    };
    if (keys.k_step)
        all_of_them(int8_t());
    else
        all_of_them(T());
    apply(member, of.output, mixed, of.output.in, added, spread<T>(width), rows, rounded, after);
}

template <typename T>
template <typename After>
void Texts<T>::feed_forward(Member& member, const FeedForward& of, const T* from, After after) {
    const int64_t apart = spread<T>(of.up.out);
    const bool gated = of.gate.out;
    const auto activate = [&](int64_t row, int64_t end, int64_t first, int64_t last) {
        for (; row < end; ++row)
            for (int64_t i = row * apart + first, n = last - first; n > 0; i += WIDTH<T>, n -= WIDTH<T>) {
                const auto up = load_some<Lanes<T>>(inner + i, n);
                const auto y = gated ? activated<T>(of.activation, load_some<Lanes<T>>(gate + i, n)) * up
                                     : activated<T>(of.activation, up);
                store_some(inner + i, y, n);
            }
    };
    if (gated) {
        apply(member, of.up, from, width, inner, apart, rows, rounded);
        apply(member, of.gate, from, width, gate, apart, rows, rounded, activate);
    } else {
        apply(member, of.up, from, width, inner, apart, rows, rounded, activate);
    }
    apply(member, of.down, inner, apart, added, spread<T>(width), rows, rounded, after);
}

}  // namespace glassformer
