// Linear maps for few rows, y = x W^T + b, with W in the numbers of x, in bfloat16 or in 8 bits.
//
// These functions are called by all members of a team.

#pragma once

#include "whole.h"

namespace glassformer {

constexpr int64_t OUTPUTS = 4;                    // rows of W in the numbers of x that are multiplied at once
constexpr int64_t ROWS = BYTES == 64 ? 6 : 3;     // of x, by W in the numbers of x: all sums stay in registers
constexpr int64_t PARTS_OF_GROUP = GROUP / WIDTH<float>;

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
__attribute__((noinline)) void four_sums(const Same<T>& w, const T* x, int64_t in, Four<T>* found) {
    Lanes<T> sums[N][OUTPUTS] = {};
    int64_t d = 0;
    for (; d + WIDTH<T> <= in; d += WIDTH<T>) {
        Lanes<T> numbers[N];
        EACH for (int m = 0; m < N; ++m) numbers[m] = load<Lanes<T>>(x + m * in + d);
        EACH for (int m = 0; m < N; ++m) stays(numbers[m]);
        w.prefetch(d);
        EACH for (int n = 0; n < OUTPUTS; ++n) {
            Lanes<T> weights = load<Lanes<T>>(w.row[n] + d);
            stays(weights);
            EACH for (int m = 0; m < N; ++m) sums[m][n] = fused(weights, numbers[m], sums[m][n]);
        }
    }
    EACH for (int m = 0; m < N; ++m) found[m] = totals(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
    for (; d < in; ++d)
        EACH for (int m = 0; m < N; ++m)
            EACH for (int n = 0; n < OUTPUTS; ++n) found[m][n] += w.row[n][d] * x[m * in + d];
}

template <typename T>
void map_same(Member& member, const Map& map, const T* x, T* y, int64_t rows, int64_t stride) {
    const T* bias = (const T*)map.bias;
    const int64_t in = map.in, near = std::max(ROWS, NEAR / int64_t(in * sizeof(T)) / ROWS * ROWS);
    each_block(member, map.out, OUTPUTS, OUTPUTS * in * sizeof(T), rows, near, [&](int64_t group, int64_t row, int64_t n) {
        const int64_t first = group * OUTPUTS, left = map.out - first;
        const auto added = load_some<Four<T>>(bias ? bias + first : bias, left);
        each_tile<ROWS>(n, [&](int64_t m, auto some) {
            Four<T> found[some];
            four_sums<T, some>(Same<T>(map, group), x + (row + m) * in, in, found);
            for (int64_t i = 0; i < some; ++i)
                store_some(y + (row + m + i) * stride + first, found[i] + added, left);
        });
    });
}

// Adds the products of one column: W in bfloat16 is the upper half of a float. A piece has two columns, one in the upper
// half of each 32 bits and one in the lower.
template <int COLUMN, int N>
inline void add_column(const char* w, const float* x, int64_t in, Lanes<float> (&sums)[N][PARTS_OF_GROUP]) {
    typedef typename Numbers<uint32_t, WIDTH<float>>::Vector Both;
    Lanes<float> numbers[N];
    EACH for (int m = 0; m < N; ++m) numbers[m] = x[m * in + COLUMN] - Lanes<float>{};
    EACH for (int n = 0; n < PARTS_OF_GROUP; ++n) {
        const auto both = load<Both>(w + n * BYTES);
        auto weights = (Lanes<float>)(COLUMN ? both & 0xffff0000 : both << 16);
        stays(weights);
        EACH for (int m = 0; m < N; ++m) sums[m][n] = fused(weights, numbers[m], sums[m][n]);
    }
}

// Adds the products of `columns` columns to the sums of a group of outputs, for each of `N` rows of x.
template <int N>
__attribute__((noinline)) void add_upper(const char* w, const float* x, int64_t in, int64_t columns,
                                         Lanes<float> (*all)[PARTS_OF_GROUP]) {
    Lanes<float> even[N][PARTS_OF_GROUP] = {}, odd[N][PARTS_OF_GROUP] = {};
    int64_t d = 0;
    for (; d + 2 <= columns; d += 2, w += PIECE) {
        request(w + AHEAD);
        add_column<0, N>(w, x + d, in, even);
        add_column<1, N>(w, x + d, in, odd);
    }
    if (d < columns) add_column<0, N>(w, x + d, in, even);
    EACH for (int m = 0; m < N; ++m)
        EACH for (int n = 0; n < PARTS_OF_GROUP; ++n) all[m][n] += even[m][n] + odd[m][n];
}

inline void map_upper(Member& member, const Map& map, const float* x, float* y, int64_t rows, int64_t stride) {
    constexpr int64_t SOME = 15, STRETCH_OF_UPPER = 256;
    const auto* bias = (const float*)map.bias;
    const int64_t in = map.in, bytes = GROUP * filled(in) * 2;
    each_block(member, map.out, GROUP, bytes, rows, SOME, [&](int64_t group, int64_t row, int64_t n) {
        const auto* w = (const char*)map.weight + group * bytes;
        Lanes<float> sums[SOME][PARTS_OF_GROUP] = {};
        for (int64_t d = 0; d < in; d += STRETCH_OF_UPPER)
            each_tile<ROWS>(n, [&](int64_t m, auto some) {
                add_upper<some>(w + d * GROUP * 2, x + (row + m) * in + d, in, std::min(STRETCH_OF_UPPER, in - d), sums + m);
            });
        for (int64_t part = 0; part < PARTS_OF_GROUP; ++part) {
            const int64_t first = group * GROUP + part * WIDTH<float>, left = map.out - first;
            if (left <= 0) break;
            const auto added = load_some<Lanes<float>>(bias ? bias + first : bias, left);
            for (int64_t m = 0; m < n; ++m) store_some(y + (row + m) * stride + first, sums[m][part] + added, left);
        }
    });
}

// x [rows, in] lies row by row; the rows of y [rows, out] begin `stride` numbers apart.
inline void apply(Member& member, const Map& map, const float* x, float* y, int64_t rows, int64_t stride,
                  Rounded room) {
    if (map.kind == INT8)
        map_whole(member, map, x, y, rows, stride, room);
    else if (map.kind == BFLOAT16)
        map_upper(member, map, x, y, rows, stride);
    else
        map_same<float>(member, map, x, y, rows, stride);
}

inline void apply(Member& member, const Map& map, const double* x, double* y, int64_t rows, int64_t stride, Rounded) {
    map_same<double>(member, map, x, y, rows, stride);
}

}  // namespace glassformer
