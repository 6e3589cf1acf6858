// Linear maps with W in the numbers of x, row by row: as the model has it, not copied.

#pragma once

#include "tiles.h"

namespace glassformer {

constexpr int64_t OUTPUTS = 4;                 // rows of W that are multiplied at once
constexpr int64_t ROWS = BYTES == 64 ? 6 : 3;  // of x: all sums stay in registers
constexpr int64_t NEAR = 16384;                // bytes of x that stay in the first cache of a processor

// Four rows of W in the numbers of x. At the end, the last one stands for those that are missing.
template <typename T>
struct Same {
    static constexpr int64_t FAR = 512 / sizeof(T);
    const T* row[OUTPUTS];
    int64_t in;
    Same(const Map& map, int64_t group) : in(map.in) {
        for (int64_t n = 0; n < OUTPUTS; ++n)
            row[n] = (const T*)map.weight + std::min(group * OUTPUTS + n, map.out - 1) * map.in;
    }
    void prefetch(int64_t d) const {  // behind the end of a row lies that of the next group
        const int64_t at = d + FAR < in ? d + FAR : d + FAR - in + OUTPUTS * in;
        if (d % (64 / int64_t(sizeof(T))) == 0)
            for (int64_t n = 0; n < OUTPUTS; ++n) request(row[n] + at);
    }
};

// Four numbers of the output for each of `N` rows of x.
template <typename T, int N>
__attribute__((noinline)) void four_sums(const Same<T>& w, const T* x, int64_t apart, Four<T>* found) {
    Lanes<T> sums[N][OUTPUTS] = {};
    int64_t d = 0;
    for (; d + WIDTH<T> <= w.in; d += WIDTH<T>) {
        Lanes<T> numbers[N];
        EACH for (int m = 0; m < N; ++m) numbers[m] = load<Lanes<T>>(x + m * apart + d);
        EACH for (int m = 0; m < N; ++m) stays(numbers[m]);
        w.prefetch(d);
        EACH for (int n = 0; n < OUTPUTS; ++n) {
            Lanes<T> weights = load<Lanes<T>>(w.row[n] + d);
            stays(weights);
            EACH for (int m = 0; m < N; ++m) sums[m][n] = fused(weights, numbers[m], sums[m][n]);
        }
    }
    EACH for (int m = 0; m < N; ++m) found[m] = totals(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
    for (; d < w.in; ++d)
        EACH for (int m = 0; m < N; ++m)
            EACH for (int n = 0; n < OUTPUTS; ++n) found[m][n] += w.row[n][d] * x[m * apart + d];
}

template <typename T, typename After>
void map_same(Member& member, const Map& map, const T* x, int64_t x_apart, T* y, int64_t y_apart, int64_t rows,
              After after) {
    const T* bias = (const T*)map.bias;
    const int64_t in = map.in, near = std::max(ROWS, NEAR / int64_t(in * sizeof(T)) / ROWS * ROWS);
    const int64_t bytes = OUTPUTS * in * int64_t(sizeof(T));
    each_block(member, map.out, OUTPUTS, bytes, rows, near, [&](int64_t group, int64_t row, int64_t n) {
        const int64_t first = group * OUTPUTS, left = map.out - first;
        const auto added = load_some<Four<T>>(bias ? bias + first : bias, left);
        each_tile<ROWS>(n, [&](int64_t m, auto some) {
            Four<T> found[some];
            four_sums<T, some>(Same<T>(map, group), x + (row + m) * x_apart, x_apart, found);
            for (int64_t i = 0; i < some; ++i) store_some(y + (row + m + i) * y_apart + first, found[i] + added, left);
        });
    }, after);
}

}  // namespace glassformer
