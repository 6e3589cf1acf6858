// What Python calls: texts through all blocks, and single maps.

#include <vector>

#include "stack.h"

namespace glassformer {

// Tokens of some texts, and what all blocks share.
template <typename T>
struct Call {
    const Block* blocks;
    int64_t n_blocks;
    Norm last;
    T* x;
    int64_t rows, tokens, width;
    Rotation rotation;
    Keys own, cross;
    Nearby nearby;
    int64_t of_memory(int64_t some) const { return cross.memory ? some / tokens * cross.length : 0; }  // its vectors
};

// Room for what is computed of some rows.
template <typename T>
struct Rooms {
    int64_t most;
    Room<T> normed, projected, remembered, mixed, inner, gate, added, begun, weights;
    Rounded rounded;
    Rooms(const Call<T>& call, const Sizes& sizes, int64_t rows, int threads)
        : most(std::max(call.own.length, call.cross.length) + BYTES),  // a vector more than there are keys
          normed(std::max<int64_t>(rows, 1 + threads) * call.width),
          projected(rows * spread<T>(sizes.projected)),
          remembered(call.of_memory(rows) * 2 * spread<T>(sizes.remembered)),
          mixed(rows * sizes.mixed),
          inner(rows * spread<T>(sizes.inner)),
          gate(rows * spread<T>(sizes.inner)),
          added(rows * spread<T>(call.width)),
          begun(rows * sizes.begun),
          weights(threads * most),
          rounded(std::max(rows, call.of_memory(rows)), sizes.whole, threads) {}
};

// The texts from `first` to `end`, in a team.
template <typename T>
void some_texts(const Call<T>& call, const Rooms<T>& in, int64_t first, int64_t end, int threads) {
    Texts<T> texts{first,          (end - first) * call.tokens,
                  call.tokens,    call.width,
                  call.rotation,  call.own,
                  call.cross,     call.nearby,
                  call.x + first * call.tokens * call.width,
                  in.normed.data, in.projected.data, in.remembered.data,
                  in.mixed.data,  in.inner.data,
                  in.gate.data,   in.added.data,
                  in.begun.data,  in.rounded};
    in_team(threads, PHASES * call.n_blocks + 1, [&](Member& member) {
        for (int64_t i = 0; i < call.n_blocks; ++i)
            texts.block(member, call.blocks[i], i, in.weights.data + member.number * in.most);
        if (call.last.kind != NOTHING)
            texts.each_row(member, [&](T* here, int64_t) { normalise(call.last, here, here, call.width); });
    });
}

constexpr int64_t WORTH_IT = 65536;  // products of a map below which waking other threads takes longer than the work
constexpr int64_t APART = 64;        // rows for which all weights can be read: reading takes less than multiplying

// No text depends on another. So threads share texts if there are enough for each to get as many, and never wait for
// one another, while what they compute stays near; if not, they share the work of each loop.
template <typename T>
void all_texts(const Call<T>& call, int threads) {
    Sizes sizes;
    for (int64_t i = 0; i < call.n_blocks; ++i) sizes.see(call.blocks[i]);
    if (call.rows * sizes.products <= WORTH_IT * sizes.maps) threads = 1;
    const int64_t texts = call.rows / call.tokens, several = std::min(texts, call.rows / APART);
    const int64_t parts = several - several % threads;
    const bool even = parts && (texts % parts == 0 || texts >= 4 * parts || parts >= 4 * threads);
    if (parts < 2 || !even)
        return some_texts(call, Rooms<T>(call, sizes, call.rows, threads), 0, texts, threads);
    const int64_t most = (texts + parts - 1) / parts * call.tokens;
    std::vector<std::unique_ptr<Rooms<T>>> rooms;
    for (int i = 0; i < threads; ++i) rooms.emplace_back(new Rooms<T>(call, sizes, most, 1));
    in_team(threads, 1, [&](Member& member) {
        member.share(parts, [&](int64_t part, int64_t end) {
            for (; part < end; ++part)
                some_texts(call, *rooms[member.number], texts * part / parts, texts * (part + 1) / parts, 1);
        }, MANY_PIECES);
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

extern "C" bool stack_float(const Block* blocks, int64_t n, const Norm* last, float* x, int64_t rows, int64_t tokens,
                           int64_t width, const Rotation* rotation, const Keys* own, const Keys* cross,
                           const Nearby* nearby, int threads) {
    const Call<float> call{blocks, n, *last, x, rows, tokens, width, *rotation, *own, *cross, *nearby};
    return enough_memory_for([&] { all_texts(call, threads); });
}

// For tests, which compare with the modules in float64, and for models in float64.
extern "C" bool stack_double(const Block* blocks, int64_t n, const Norm* last, double* x, int64_t rows, int64_t tokens,
                            int64_t width, const Rotation* rotation, const Keys* own, const Keys* cross,
                            const Nearby* nearby, int threads) {
    const Call<double> call{blocks, n, *last, x, rows, tokens, width, *rotation, *own, *cross, *nearby};
    return enough_memory_for([&] { all_texts(call, threads); });
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
        const Rounded room(eight ? rows : 0, map->in, threads);
        if (rows * map->in * map->out <= WORTH_IT) threads = 1;
        in_team(threads, 2, [&](Member& member) {
            apply(member, *map, x, map->in, y, map->out, rows, room);
        });
    });
}
