// Tokens of some texts through all blocks and the last norm, and single maps: what `Block`, `Residual`, `Attention`,
// `FeedForward` and the norms compute (block.py, residual.py, attention.py, feed_forward.py, norm.py), in one call.
//
// All members of a team go through every function together, and share the work of each loop.

#include "keys.h"
#include "maps.h"
#include "rows.h"

namespace glassformer {

struct Residual {
    Norm in, out, sum;
    double scale;
};

// The maps of query, key and value are one after another: their outputs lie side by side. Those with no output are left
// out: key and value if they are joined to the query's, or if all keys are already there.
struct Attention {
    int64_t heads, kv_heads, width;
    double scale;
    Norm query_norm, key_norm;
    Map inputs[3];
    Map output;
};

// `gate` has no output in a plain one.
struct FeedForward {
    int64_t activation;
    Map up, gate, down;
};

struct Block {
    Residual around_own;
    Attention own;
    int64_t crosses;
    Residual around_cross;
    Attention cross;
    Residual around_forward;
    FeedForward forward;
};

constexpr int64_t PHASES = 36;  // of a block, at the most: three branches of up to twelve

// One call: the sizes that all blocks share, and room for what they compute. Each of `rows` is a token, `tokens` of each
// text one after another. A member's `weights` are its own.
template <typename T>
struct Step {
    int64_t rows, tokens, width;
    Rotation rotation;
    Keys own, cross;
    T *x, *normed, *projected, *mixed, *inner, *gate, *added;
    const Rounded& rounded;

    void attention(Member& member, const Attention& of, const Keys& keys, int64_t block, T* weights);
    void feed_forward(Member& member, const FeedForward& of);

    // Calls work(row's numbers in the residual stream, where they begin).
    template <typename Work>
    void each_row(Member& member, Work work) {
        member.share(rows, [&](int64_t row, int64_t end) {
            for (; row < end; ++row) work(x + row * width, row * width);
        });
    }

    // norm_sum(scale x + norm_out(branch(norm_in(x))))
    template <typename Branch>
    void residual(Member& member, const Residual& around, Branch branch) {
        each_row(member, [&](T* here, int64_t at) { normalise(around.in, here, normed + at, width); });
        branch();
        each_row(member, [&](T* here, int64_t at) {
            T* new_here = added + at;
            if (around.out.kind != NOTHING) normalise(around.out, new_here, new_here, width);
            for (int64_t i = 0; i < width; ++i) here[i] = here[i] * T(around.scale) + new_here[i];
            if (around.sum.kind != NOTHING) normalise(around.sum, here, here, width);
        });
    }

    void block(Member& member, const Block& of, int64_t number, T* weights) {
        residual(member, of.around_own, [&] { attention(member, of.own, own, number, weights); });
        if (of.crosses) residual(member, of.around_cross, [&] { attention(member, of.cross, cross, number, weights); });
        residual(member, of.around_forward, [&] { feed_forward(member, of.forward); });
    }

    template <typename Number>
    Held<Number> held(const Attention& of, const Keys& keys, int64_t block, int64_t text, int64_t group);
    template <typename Number>
    void take(const Attention& of, const Keys& keys, int64_t row, int64_t group, const Held<Number>& held);
    template <typename Number>
    void read(const Attention& of, const Keys& keys, int64_t row, int64_t group, const Held<Number>& held, T* weights);
};

// The keys and values that the heads of a group share in one text: in a cache, or those of the tokens where they are.
template <typename T>
template <typename Number>
Held<Number> Step<T>::held(const Attention& of, const Keys& keys, int64_t block, int64_t text, int64_t group) {
    const auto steps = [=](float* const* layers) { return layers ? layers[block] : nullptr; };
    if (keys.k)
        return {Vectors<Number>(keys.k[block], steps(keys.k_step), keys.keys, keys.key_steps, text, group),
                Vectors<Number>(keys.v[block], steps(keys.v_step), keys.values, keys.value_steps, text, group)};
    const int64_t K = of.width, all = (of.heads + 2 * of.kv_heads) * K;
    const Lie here{tokens * all, K, all};
    return {Vectors<Number>(projected + of.heads * K, nullptr, here, {}, text, group),
            Vectors<Number>(projected + (of.heads + of.kv_heads) * K, nullptr, here, {}, text, group)};
}

// Makes the new key and value of one row, and puts them into the cache.
template <typename T>
template <typename Number>
void Step<T>::take(const Attention& of, const Keys& keys, int64_t row, int64_t group, const Held<Number>& held) {
    const int64_t K = of.width, all = (of.heads + 2 * of.kv_heads) * K;
    T* new_k = projected + row * all + (of.heads + group) * K;
    if (of.key_norm.kind != NOTHING) normalise(of.key_norm, new_k, new_k, K);
    rotate(rotation, row, new_k);
    if (!keys.k) return;
    put(held.k, keys.at[row], new_k, K);
    put(held.v, keys.at[row], new_k + of.kv_heads * K, K);
}

// The attention of one row's heads that share keys and values.
template <typename T>
template <typename Number>
void Step<T>::read(const Attention& of, const Keys& keys, int64_t row, int64_t group, const Held<Number>& held,
                   T* weights) {
    const int64_t K = of.width, shared = of.heads / of.kv_heads, text = row / tokens, token = row % tokens;
    const int64_t all = keys.fresh() ? (of.heads + 2 * of.kv_heads) * K : of.heads * K;
    for (int64_t head = group * shared; head < (group + 1) * shared; ++head) {
        T *q = projected + row * all + head * K, *to = mixed + (row * of.heads + head) * K;
        if (of.query_norm.kind != NOTHING) normalise(of.query_norm, q, q, K);
        if (keys.fresh()) rotate(rotation, row, q);
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
void Step<T>::attention(Member& member, const Attention& of, const Keys& keys, int64_t block, T* weights) {
    int64_t all = 0, from = 0;
    for (const Map& map : of.inputs) all += map.out;
    for (const Map& map : of.inputs) {
        if (map.out) apply(member, map, normed, projected + from, rows, all, rounded);
        from += map.out;
    }
    const auto each = [&](auto number, bool takes, bool reads) {
        member.share(rows * of.kv_heads, [&](int64_t i, int64_t end) {
            for (; i < end; ++i) {
                const int64_t row = i / of.kv_heads, group = i % of.kv_heads;
                const auto there = held<decltype(number)>(of, keys, block, row / tokens, group);
                if (takes) take(of, keys, row, group, there);
                if (reads) read(of, keys, row, group, there, weights);
            }
        });
    };
    const auto all_of_them = [&](auto number) {
        const bool first = keys.fresh() && tokens > 1;  // a token reads what others of its text have put
        if (first) each(number, true, false);
        each(number, keys.fresh() && !first, true);
    };
    if (keys.k_step)
        all_of_them(int8_t());
    else
        all_of_them(T());
    apply(member, of.output, mixed, added, rows, width, rounded);
}

template <typename T>
void Step<T>::feed_forward(Member& member, const FeedForward& of) {
    const int64_t vectors = (rows * of.up.out + WIDTH<T> - 1) / WIDTH<T>;  // there is room for a whole one at the end
    apply(member, of.up, normed, inner, rows, of.up.out, rounded);
    if (of.gate.out) apply(member, of.gate, normed, gate, rows, of.gate.out, rounded);
    member.share(vectors, [&](int64_t i, int64_t end) {
        for (i *= WIDTH<T>, end *= WIDTH<T>; i < end; i += WIDTH<T>) {
            const Lanes<T> up = load<Lanes<T>>(inner + i);
            const Lanes<T> y = of.gate.out ? activated<T>(of.activation, load<Lanes<T>>(gate + i)) * up
                                           : activated<T>(of.activation, up);
            store(inner + i, y);
        }
    });
    apply(member, of.down, inner, added, rows, width, rounded);
}

constexpr int64_t WORTH_IT = 65536;  // products of a map below which waking other threads takes longer than the work

// The widest of what a step holds for each row, and its work.
struct Sizes {
    int64_t projected = 0, mixed = 0, inner = 0, whole = 0, maps = 0, products = 0;

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
        see(of.output);
        projected = std::max(projected, all);
        mixed = std::max(mixed, of.output.in);
    }

    void see(const Block& of) {
        see(of.own);
        if (of.crosses) see(of.cross);
        for (const Map* map : {&of.forward.up, &of.forward.gate, &of.forward.down}) see(*map);
        inner = std::max(inner, of.forward.up.out);
    }
};

template <typename T>
void all_blocks(const Block* blocks, int64_t n_blocks, const Norm& last, T* x, int64_t rows, int64_t tokens,
                int64_t width, const Rotation& rotation, const Keys& own, const Keys& cross, int threads) {
    Sizes sizes;
    for (int64_t i = 0; i < n_blocks; ++i) sizes.see(blocks[i]);
    const Room<T> normed(rows * width), projected(rows * sizes.projected), mixed(rows * sizes.mixed);
    const Room<T> inner(rows * sizes.inner), gate(rows * sizes.inner), added(rows * width);
    const Rounded rounded(rows, sizes.whole);
    Step<T> all{rows,           tokens,     width,      rotation,  own,        cross,  x, normed.data,
                projected.data, mixed.data, inner.data, gate.data, added.data, rounded};

    if (rows * sizes.products <= WORTH_IT * sizes.maps) threads = 1;
    const int64_t most = std::max(own.length, cross.length) + BYTES;  // a vector more than there are keys
    const Room<T> weights(threads * most);
    in_team(threads, PHASES * n_blocks + 1, [&](Member& member) {
        for (int64_t i = 0; i < n_blocks; ++i) all.block(member, blocks[i], i, weights.data + member.number * most);
        if (last.kind != NOTHING) all.each_row(member, [&](T* here, int64_t) { normalise(last, here, here, width); });
    });
}

// Whether there was memory for the work: no exception may leave C++.
template <typename Work>
bool enough_memory_for(Work work) {
    try {
        work();
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

}  // namespace glassformer

using namespace glassformer;

extern "C" bool step_float(const Block* blocks, int64_t n, const Norm* last, float* x, int64_t rows, int64_t tokens,
                           int64_t width, const Rotation* rotation, const Keys* own, const Keys* cross, int threads) {
    return enough_memory_for(
        [&] { all_blocks(blocks, n, *last, x, rows, tokens, width, *rotation, *own, *cross, threads); });
}

// For tests, which compare with the modules in float64, and for models in float64.
extern "C" bool step_double(const Block* blocks, int64_t n, const Norm* last, double* x, int64_t rows, int64_t tokens,
                            int64_t width, const Rotation* rotation, const Keys* own, const Keys* cross, int threads) {
    return enough_memory_for(
        [&] { all_blocks(blocks, n, *last, x, rows, tokens, width, *rotation, *own, *cross, threads); });
}

// Completes a weight in 8 bits, which has all but the heads of its groups.
extern "C" bool write_heads(int8_t* weight, int64_t groups, int64_t in) {
    heads_of(weight, groups, in);
    return true;
}

// One map: x [rows, in] to y [rows, out].
extern "C" bool linear_map(const Map* map, const float* x, float* y, int64_t rows, int threads) {
    return enough_memory_for([&] {
        const bool eight = map->kind == INT8;
        const Rounded room(eight ? rows : 0, map->in);
        if (rows * map->in * map->out <= WORTH_IT) threads = 1;
        in_team(threads, 2, [&](Member& member) {
            apply(member, *map, x, y, rows, map->out, room);
        });
    });
}
