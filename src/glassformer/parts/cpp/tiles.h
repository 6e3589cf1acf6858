// What linear maps of all numbers share: how W lies in memory, and in which order its parts are multiplied.
//
// Writing one text reads every weight once per token, so reading takes the time, and the next weights are always
// requested before they are needed. Each row of x is summed in an order of its own: what it gets does not depend on the
// rows beside it, nor on the threads.

#pragma once

#include <type_traits>

#include "lanes.h"
#include "team.h"

namespace glassformer {

enum Kind : int64_t { AS_X = 0, BFLOAT16 = 1, INT8 = 2 };  // NUMBERS of native.py

// W [out, in] lies row by row if it has the numbers of x. Else it lies in groups of four rows, each group in pieces of
// 16 numbers of each row, filled up with zeros: in the order of use. In 8 bits every row has its step. A bias may be
// missing.
struct Map {
    int64_t kind, in, out;
    const void *weight, *step, *bias;
};

constexpr int64_t OUTPUTS = 4;   // rows of W multiplied at once
constexpr int64_t AHEAD = 1024;  // bytes of W, where they lie in the order of use, that are requested before their use
constexpr int64_t FAR_AHEAD = 6144;  // the same, where several rows of x are multiplied by W in 8 bits: it takes longer
constexpr int64_t COLUMNS = 16;  // numbers in a piece
constexpr int64_t NEAR = 16384, CLOSE = 131072;  // bytes that stay in the first and in the second cache of a processor

constexpr int64_t filled(int64_t in) { return (in + COLUMNS - 1) / COLUMNS * COLUMNS; }

// Calls tile with `n` <= MOST as a constant.
template <int MOST, typename Tile>
inline void with_constant(int64_t n, Tile tile) {
    if constexpr (MOST > 1)
        if (n < MOST) return with_constant<MOST - 1>(n, tile);
    tile(std::integral_constant<int, MOST>());
}

// Requests weights. As they are read once per step, they need not stay in the larger caches, and come faster so.
inline void request(const void* weights) { __builtin_prefetch(weights, 0, 0); }

// Calls tile(group, row, n) for all groups of outputs and up to MOST rows each, whose number n is a constant. In its
// order, rows of x stay near while close rows of W are multiplied by them.
template <int64_t MOST, typename Tile>
inline void each_tile(Member& member, int64_t out, int64_t rows, int64_t bytes_of_x, int64_t bytes_of_w, Tile tile) {
    const int64_t near = std::max(MOST, NEAR / bytes_of_x / MOST * MOST);
    const int64_t close = std::max<int64_t>(1, CLOSE / (OUTPUTS * bytes_of_w));
    member.share((out + OUTPUTS - 1) / OUTPUTS, [&](int64_t begin, int64_t end) {
        for (int64_t from = begin; from < end; from += close)
            for (int64_t above = 0; above < rows; above += near)
                for (int64_t group = from; group < std::min(end, from + close); ++group)
                    for (int64_t row = above; row < std::min(rows, above + near); row += MOST)
                        with_constant<MOST>(std::min(rows, above + near) - row, [&](auto n) { tile(group, row, n); });
    });
}

// Writes the numbers of a group to y, which may end within it.
template <typename T>
inline void store_group(T* y, Four<T> numbers, int64_t n) {
    if (n >= OUTPUTS)
        store(y, numbers);
    else
        for (int64_t i = 0; i < n; ++i) y[i] = numbers[i];
}

// Numbers of a group of something that may end within it, or is missing.
template <typename T>
inline Four<T> load_group(const T* from, int64_t n) {
    Four<T> numbers = {};
    if (from && n >= OUTPUTS) return load<Four<T>>(from);
    if (from)
        for (int64_t i = 0; i < n; ++i) numbers[i] = from[i];
    return numbers;
}

}  // namespace glassformer
