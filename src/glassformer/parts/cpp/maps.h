// Linear maps for few rows, y = x W^T + b, with W in the numbers of x, in bfloat16 or in 8 bits.
//
// These functions are called by all members of a team.

#pragma once

#include "whole.h"

namespace glassformer {

// Four rows of W in the numbers of x. At the end, the last one stands for those that are missing.
template <typename T>
struct Same {
    typedef T Stored;
    static constexpr int64_t FAR = 512 / sizeof(T);
    const T* row[OUTPUTS];
    int64_t in;
    Same(const Map& map, int64_t group) : in(map.in) {
        for (int64_t n = 0; n < OUTPUTS; ++n)
            row[n] = (const T*)map.weight + std::min(group * OUTPUTS + n, map.out - 1) * map.in;
    }
    Lanes<T> vector(int64_t n, int64_t d) const { return load<Lanes<T>>(row[n] + d); }
    T number(int64_t n, int64_t d) const { return row[n][d]; }
    void prefetch(int64_t d) const {  // behind the end of a row lies that of the next group
        const int64_t at = d + FAR < in ? d + FAR : d + FAR - in + OUTPUTS * in;
        if (d % (64 / int64_t(sizeof(T))) == 0)
            for (int64_t n = 0; n < OUTPUTS; ++n) request(row[n] + at);
    }
};

// Four rows of W in bfloat16, the upper half of a float.
struct Upper {
    typedef uint16_t Stored;
    const uint16_t* w;
    Upper(const Map& map, int64_t group) : w((const uint16_t*)map.weight + group * OUTPUTS * filled(map.in)) {}
    const uint16_t* at(int64_t n, int64_t d) const {
        return w + d / COLUMNS * (OUTPUTS * COLUMNS) + n * COLUMNS + d % COLUMNS;
    }
    Lanes<float> vector(int64_t n, int64_t d) const {
#if defined(HAS_AVX512)
        return (Lanes<float>)_mm512_slli_epi32(_mm512_cvtepu16_epi32(load<__m256i>(at(n, d))), 16);
#elif defined(HAS_AVX2)
        return (Lanes<float>)_mm256_slli_epi32(_mm256_cvtepu16_epi32(load<__m128i>(at(n, d))), 16);
#else
        Lanes<float> numbers;
        for (int i = 0; i < WIDTH<float>; ++i) numbers[i] = number(n, d + i);
        return numbers;
#endif
    }
    float number(int64_t n, int64_t d) const {
        const uint32_t bits = uint32_t(*at(n, d)) << 16;
        return load<float>(&bits);
    }
    void prefetch(int64_t d) const {
        for (int64_t i = 0; i < 8 * WIDTH<float>; i += 64) request((const char*)(w + d * OUTPUTS) + AHEAD + i);
    }
};

// Four numbers of the output for each of `N` rows of x.
template <typename T, typename Weights, int N>
__attribute__((noinline)) void four_sums(const Weights& w, const T* x, int64_t in, Four<T>* found) {
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

constexpr int64_t ROWS = BYTES == 64 ? 6 : 3;  // of x at once: all sums stay in registers

template <typename T, typename Weights>
void map_numbers(Member& member, const Map& map, const T* x, T* y, int64_t rows, int64_t stride) {
    const T* bias = (const T*)map.bias;
    const int64_t in = map.in, bytes_of_w = in * sizeof(typename Weights::Stored);
    each_tile<ROWS>(member, map.out, rows, in * sizeof(T), bytes_of_w, [&](int64_t group, int64_t row, auto n_rows) {
        const int64_t first = group * OUTPUTS, left = map.out - first;
        Four<T> found[n_rows];
        four_sums<T, Weights, n_rows>(Weights(map, group), x + row * in, in, found);
        const Four<T> added = load_group(bias ? bias + first : bias, left);
        for (int64_t m = 0; m < n_rows; ++m) store_group<T>(y + (row + m) * stride + first, found[m] + added, left);
    });
}

// x [rows, in] lies row by row; the rows of y [rows, out] begin `stride` numbers apart.
inline void apply(Member& member, const Map& map, const float* x, float* y, int64_t rows, int64_t stride,
                  Rounded room) {
    if (map.kind == INT8)
        map_whole(member, map, x, y, rows, stride, room);
    else if (map.kind == BFLOAT16)
        map_numbers<float, Upper>(member, map, x, y, rows, stride);
    else
        map_numbers<float, Same<float>>(member, map, x, y, rows, stride);
}

inline void apply(Member& member, const Map& map, const double* x, double* y, int64_t rows, int64_t stride, Rounded) {
    map_numbers<double, Same<double>>(member, map, x, y, rows, stride);
}

}  // namespace glassformer
