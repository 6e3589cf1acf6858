// What linear maps of all numbers share: how W lies in memory, and in which order its parts are multiplied.
//
// Writing one text reads every weight once per token, so reading takes the time, and the next weights are always
// requested before they are needed. Each row of x is summed in an order of its own: what it gets does not depend on the
// rows beside it, nor on the number of threads.

#pragma once

#include <omp.h>

#include <algorithm>
#include <type_traits>

#include "lanes.h"

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
constexpr int64_t AHEAD = 2048;  // bytes of W requested before they are needed, where they lie in the order of use
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

// Calls tile(group, row, n) for all groups of outputs and up to MOST rows each, whose number n is a constant, in an order
// in which rows of x stay near while close rows of W are multiplied by them. Each thread takes a range of the outputs.
template <int64_t MOST, typename Tile>
inline void each_tile(int64_t out, int64_t rows, int64_t bytes_of_x, int64_t bytes_of_w, Tile tile) {
    const int64_t groups = (out + OUTPUTS - 1) / OUTPUTS, threads = omp_get_num_threads(), me = omp_get_thread_num();
    const int64_t begin = groups * me / threads, end = groups * (me + 1) / threads;
    const int64_t near = std::max(MOST, NEAR / bytes_of_x / MOST * MOST);
    const int64_t close = std::max<int64_t>(1, CLOSE / (OUTPUTS * bytes_of_w));
    for (int64_t from = begin; from < end; from += close)
        for (int64_t above = 0; above < rows; above += near)
            for (int64_t group = from; group < std::min(end, from + close); ++group)
                for (int64_t row = above; row < std::min(rows, above + near); row += MOST)
                    with_constant<MOST>(std::min(rows, above + near) - row, [&](auto n) { tile(group, row, n); });
#pragma omp barrier
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
