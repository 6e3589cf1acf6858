// Linear maps for few rows, y = x W^T + b, with W in the numbers of x, in bfloat16 or in 8 bits.
//
// These functions are called by all threads of a parallel region, which share the work; each ends with a barrier.

#pragma once

#include "whole.h"

namespace glassformer {

// Four rows of W in the numbers of x. At the end, the last one stands for those that are missing.
template <typename T>
struct Same {
    typedef T Stored;
    const T* row[OUTPUTS];
    int64_t next;
    Same(const Map& map, int64_t group) : next(OUTPUTS * map.in) {
        for (int64_t n = 0; n < OUTPUTS; ++n)
            row[n] = (const T*)map.weight + std::min(group * OUTPUTS + n, map.out - 1) * map.in;
    }
    Lanes<T> vector(int64_t n, int64_t d) const { return load<Lanes<T>>(row[n] + d); }
    T number(int64_t n, int64_t d) const { return row[n][d]; }
    void prefetch(int64_t d) const {
        if (d % (2 * WIDTH<T>) == 0)
            for (int64_t n = 0; n < OUTPUTS; ++n) __builtin_prefetch(row[n] + d + next);
    }
};

// Four rows of W in bfloat16, the upper half of a float.
struct Upper {
    typedef uint16_t Stored;
    const uint16_t* w;
    Upper(const Map& map, int64_t group) : w((const uint16_t*)map.weight + group * OUTPUTS * filled(map.in, HALVES)) {}
    // The eight from column d on, where a piece begins.
    Lanes<float> vector(int64_t n, int64_t d) const {
        const uint16_t* piece = w + d * OUTPUTS + n * HALVES;
#if defined(__AVX2__)
        return (Lanes<float>)_mm256_slli_epi32(_mm256_cvtepu16_epi32(load<__m128i>(piece)), 16);
#else
        Lanes<float> numbers;
        for (int i = 0; i < HALVES; ++i) numbers[i] = widened(piece[i]);
        return numbers;
#endif
    }
    float number(int64_t n, int64_t d) const {
        return widened(w[(d - d % HALVES) * OUTPUTS + n * HALVES + d % HALVES]);
    }
    void prefetch(int64_t d) const { __builtin_prefetch(w + d * OUTPUTS + AHEAD / 2); }
    static float widened(uint16_t half) {
        const uint32_t bits = uint32_t(half) << 16;
        return load<float>(&bits);
    }
};

// Four numbers of the output for each of `N` rows of x.
template <typename T, typename Weights, int N>
__attribute__((noinline)) void four_sums(const Weights& w, const T* x, int64_t in, typename Four<T>::Numbers* found) {
    Lanes<T> sums[N][OUTPUTS] = {};
    int64_t d = 0;
    for (; d + WIDTH<T> <= in; d += WIDTH<T>) {
        Lanes<T> numbers[N];
        EACH for (int m = 0; m < N; ++m) numbers[m] = load<Lanes<T>>(x + m * in + d);
        EACH for (int m = 0; m < N; ++m) stays(numbers[m]);
        w.prefetch(d);
        EACH for (int n = 0; n < OUTPUTS; ++n) {
            Lanes<T> weights = w.vector(n, d);
            stays(weights);
            EACH for (int m = 0; m < N; ++m) sums[m][n] = fused(weights, numbers[m], sums[m][n]);
        }
    }
    EACH for (int m = 0; m < N; ++m) found[m] = totals(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
    for (; d < in; ++d)
        EACH for (int m = 0; m < N; ++m)
            EACH for (int n = 0; n < OUTPUTS; ++n) found[m][n] += w.number(n, d) * x[m * in + d];
}

template <typename T, typename Weights>
void map_numbers(const Map& map, const T* x, T* y, int64_t rows, int64_t stride) {
    const T* bias = (const T*)map.bias;
    const int64_t in = map.in, bytes_of_w = in * sizeof(typename Weights::Stored);
    each_tile(map.out, rows, 3, in * sizeof(T), bytes_of_w, [&](int64_t group, int64_t row, int64_t n_rows) {
        const int64_t first = group * OUTPUTS;
        typename Four<T>::Numbers found[3];
        const Weights w(map, group);
        if (n_rows == 3)
            four_sums<T, Weights, 3>(w, x + row * in, in, found);
        else if (n_rows == 2)
            four_sums<T, Weights, 2>(w, x + row * in, in, found);
        else
            four_sums<T, Weights, 1>(w, x + row * in, in, found);
        const auto added = load_group(bias ? bias + first : bias, map.out - first);
        for (int64_t m = 0; m < n_rows; ++m)
            store_group(y + (row + m) * stride + first, found[m] + added, map.out - first);
    });
}

// x [rows, in] lies row by row; the rows of y [rows, out] begin `stride` numbers apart.
inline void apply(const Map& map, const float* x, float* y, int64_t rows, int64_t stride, Rounded room) {
    if (map.kind == INT8)
        map_whole(map, x, y, rows, stride, room);
    else if (map.kind == BFLOAT16)
        map_numbers<float, Upper>(map, x, y, rows, stride);
    else
        map_numbers<float, Same<float>>(map, x, y, rows, stride);
}

inline void apply(const Map& map, const double* x, double* y, int64_t rows, int64_t stride, Rounded) {
    map_numbers<double, Same<double>>(map, x, y, rows, stride);
}

}  // namespace glassformer
