// Linear maps with W in bfloat16, the upper half of a float, widened when it is used.
//
// A piece has two columns: read as 32 bits, one is the lower half and one the upper, as the lowest byte of a number comes
// first on all processors that torch supports.

#pragma once

#include "tiles.h"

namespace glassformer {

constexpr int64_t ROWS_IN_UPPER = BYTES == 64 ? 6 : 3;  // of x at once: all sums stay in registers
constexpr int64_t NEAR_IN_UPPER = 18;     // rows of x that are multiplied by a group of W while it is near
constexpr int64_t STRETCH_OF_UPPER = 64;  // columns of them, whose sums are added apart: that is more exact
constexpr int64_t VECTORS = GROUP / WIDTH<float>;  // of the sums of a group
static_assert(2 * GROUP * sizeof(uint16_t) == PIECE && STRETCH_OF_UPPER % 2 == 0);

// Adds the products of one column of a piece.
template <int COLUMN, int N>
inline void add_column(const uint16_t* w, const float* x, int64_t apart, Lanes<float> (&sums)[N][VECTORS]) {
    typedef typename Numbers<uint32_t, WIDTH<float>>::Vector Both;
    Lanes<float> numbers[N];
    EACH for (int m = 0; m < N; ++m) numbers[m] = all<float>(x[m * apart + COLUMN]);
    EACH for (int n = 0; n < VECTORS; ++n) {
        const auto both = load<Both>(w + n * 2 * WIDTH<float>);
        auto weights = (Lanes<float>)(COLUMN ? both & 0xffff0000 : both << 16);
        stays(weights);
        EACH for (int m = 0; m < N; ++m) sums[m][n] = fused(weights, numbers[m], sums[m][n]);
    }
}

// Adds the products of `columns` columns to the sums of a group of outputs, for each of `N` rows of x.
template <int N>
__attribute__((noinline)) void add_upper(const uint16_t* w, const float* x, int64_t apart, int64_t columns,
                                         Lanes<float> (*total)[VECTORS]) {
    Lanes<float> even[N][VECTORS] = {}, odd[N][VECTORS] = {};
    int64_t d = 0;
    for (; d + 2 <= columns; d += 2, w += 2 * GROUP) {
        request((const char*)w + AHEAD);
        add_column<0, N>(w, x + d, apart, even);
        add_column<1, N>(w, x + d, apart, odd);
    }
    if (d < columns) add_column<0, N>(w, x + d, apart, even);
    EACH for (int m = 0; m < N; ++m)
        EACH for (int n = 0; n < VECTORS; ++n) total[m][n] += even[m][n] + odd[m][n];
}

// y = x W^T + b; the arguments are those of `apply`.
template <typename After>
void map_upper(Member& member, const Map& map, const float* x, int64_t x_apart, float* y, int64_t y_apart, int64_t rows,
               After after) {
    const int64_t in = map.in, bytes = GROUP * filled(in) * int64_t(sizeof(uint16_t));
    const auto* bias = (const float*)map.bias;
    each_block(member, map.out, GROUP, bytes, rows, NEAR_IN_UPPER, [&](int64_t group, int64_t row, int64_t n) {
        const auto* w = (const uint16_t*)map.weight + group * GROUP * filled(in);
        Lanes<float> sums[NEAR_IN_UPPER][VECTORS] = {};
        for (int64_t d = 0; d < in; d += STRETCH_OF_UPPER) {
            const int64_t columns = std::min(STRETCH_OF_UPPER, in - d);
            each_tile<ROWS_IN_UPPER>(n, [&](int64_t m, auto some) {
                add_upper<some>(w + d * GROUP, x + (row + m) * x_apart + d, x_apart, columns, sums + m);
            });
        }
        for (int64_t i = 0; i < VECTORS; ++i) {
            const int64_t first = group * GROUP + i * WIDTH<float>, left = map.out - first;
            const auto added = load_some<Lanes<float>>(bias ? bias + first : bias, left);
            for (int64_t m = 0; m < n; ++m) store_some(y + (row + m) * y_apart + first, sums[m][i] + added, left);
        }
    }, after);
}

}  // namespace glassformer
