// Linear maps for few rows, y = x W^T + b, with W in the numbers of x, in bfloat16 or in 8 bits.
//
// Writing one text reads every weight once per token, so reading takes the time. Each row of x is summed in an order of
// its own: what it gets does not depend on the rows beside it, nor on the number of threads.
//
// These functions are called by all threads of a parallel region, which share the work; each ends with a barrier.

#pragma once

#include "lanes.h"

namespace glassformer {

enum Kind : int64_t { AS_X = 0, BFLOAT16 = 1, INT8 = 2 };  // NUMBERS of native.py

// W [out, in] lies row by row; in 8 bits, in groups of four rows, each group in pieces of 16 columns, each piece row by
// row, filled up with zeros, and every row has its step. A bias may be missing.
struct Map {
    int64_t kind, in, out;
    const void *weight, *step, *bias;
};

constexpr int64_t OUTPUTS = 4;  // rows of W multiplied at once: with 3 rows of x, all sums stay in registers
constexpr int ROWS = 3;
constexpr int64_t COLUMNS = 16;      // 8-bit numbers multiplied at once
constexpr int64_t AHEAD = 1024;      // bytes of W requested before they are needed
constexpr float SMALLEST = 1e-30f;   // the smallest step: TINY of eight_bits.py

typedef int8_t Narrow __attribute__((vector_size(16)));
typedef int16_t Wide __attribute__((vector_size(32)));
typedef int32_t Four __attribute__((vector_size(16)));
typedef uint16_t Halves __attribute__((vector_size(16)));
typedef uint32_t Bits __attribute__((vector_size(32)));

constexpr int64_t padded(int64_t in) { return (in + COLUMNS - 1) / COLUMNS * COLUMNS; }

// Room for the rows of x in whole numbers.
struct Rounded {
    int16_t* whole;
    float* step;
};

// How weights become numbers of x: as they are, or bfloat16, which is the upper half of a float.
template <typename T>
struct Same {
    typedef T Stored;
    static Lanes<T> vector(const T* w) { return load<Lanes<T>>(w); }
    static T number(T w) { return w; }
};

struct Widened {
    typedef uint16_t Stored;
    static Lanes<float> vector(const uint16_t* w) {
        return (Lanes<float>)(__builtin_convertvector(load<Halves>(w), Bits) << 16);
    }
    static float number(uint16_t w) {
        const uint32_t bits = uint32_t(w) << 16;
        return load<float>(&bits);
    }
};

// Four numbers of the output for each of `N` rows of x.
template <typename T, typename Weights, int N>
inline void four_sums(const typename Weights::Stored* const* w, const T* x, int64_t in, T (*found)[OUTPUTS]) {
    Lanes<T> sums[N][OUTPUTS] = {};
    int64_t d = 0;
    for (; d + WIDTH<T> <= in; d += WIDTH<T>) {
        Lanes<T> numbers[N];
        for (int m = 0; m < N; ++m) numbers[m] = load<Lanes<T>>(x + m * in + d);
        for (int n = 0; n < OUTPUTS; ++n) {
            if (N == 1) __builtin_prefetch((const char*)(w[n] + d) + AHEAD / OUTPUTS);
            const Lanes<T> weights = Weights::vector(w[n] + d);
            for (int m = 0; m < N; ++m) sums[m][n] = fused(weights, numbers[m], sums[m][n]);
        }
    }
    for (int m = 0; m < N; ++m)
        for (int n = 0; n < OUTPUTS; ++n) {
            found[m][n] = total(sums[m][n]);
            for (int64_t i = d; i < in; ++i) found[m][n] += Weights::number(w[n][i]) * x[m * in + i];
        }
}

template <typename T, typename Weights>
void map_numbers(const Map& map, const T* x, T* y, int64_t rows, int64_t stride) {
    const auto* weight = (const typename Weights::Stored*)map.weight;
    const T* bias = (const T*)map.bias;
#pragma omp for schedule(static)
    for (int64_t first = 0; first < map.out; first += OUTPUTS) {
        const int64_t here = map.out - first < OUTPUTS ? map.out - first : OUTPUTS;
        const typename Weights::Stored* w[OUTPUTS];
        for (int64_t n = 0; n < OUTPUTS; ++n) w[n] = weight + (first + (n < here ? n : 0)) * map.in;
        for (int64_t m = 0; m < rows; m += ROWS) {
            T found[ROWS][OUTPUTS];
            const int64_t left = rows - m < ROWS ? rows - m : ROWS;
            if (left == 3)
                four_sums<T, Weights, 3>(w, x + m * map.in, map.in, found);
            else if (left == 2)
                four_sums<T, Weights, 2>(w, x + m * map.in, map.in, found);
            else
                four_sums<T, Weights, 1>(w, x + m * map.in, map.in, found);
            for (int64_t p = 0; p < left; ++p)
                for (int64_t n = 0; n < here; ++n)
                    y[(m + p) * stride + first + n] = found[p][n] + (bias ? bias[first + n] : T(0));
        }
    }
}

// The 16 products, added in pairs. Widened to 16 bits before, so that no sum can overflow: unlike the 8-bit
// instructions of AVX2, whose sums saturate.
inline Whole products(Wide a, Wide b) {
#if defined(__AVX2__)
    return (Whole)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
    Whole pairs;
    for (int i = 0; i < 8; ++i) pairs[i] = int32_t(a[2 * i]) * b[2 * i] + int32_t(a[2 * i + 1]) * b[2 * i + 1];
    return pairs;
#endif
}

// The sum of each of four vectors.
inline Four totals(Whole a, Whole b, Whole c, Whole d) {
#if defined(__AVX2__)
    __m256i halves = _mm256_hadd_epi32(_mm256_hadd_epi32((__m256i)a, (__m256i)b),
                                       _mm256_hadd_epi32((__m256i)c, (__m256i)d));
    return (Four)_mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
#else
    Four sums = {0, 0, 0, 0};
    for (int i = 0; i < 8; ++i) sums += Four{a[i], b[i], c[i], d[i]};
    return sums;
#endif
}

// Writes one row in whole numbers, as `rounded` (eight_bits.py) does it, zeros behind it, and returns its step; NaN if
// a number is not finite.
inline float round_row(const float* x, int64_t in, int16_t* whole) {
    float largest[COLUMNS] = {}, wrong[COLUMNS] = {};  // sixteen of each, so that the compiler can use vectors
    const auto see = [&](int64_t d, int64_t i) {
        const float size = __builtin_fabsf(x[d + i]);
        largest[i] = size > largest[i] ? size : largest[i];
        wrong[i] += size * 0.0f;
    };
    int64_t seen = 0;
    for (; seen + COLUMNS <= in; seen += COLUMNS)
        for (int64_t i = 0; i < COLUMNS; ++i) see(seen, i);
    for (int64_t i = 0; seen + i < in; ++i) see(seen, i);
    float most = 0.0f, nothing = 0.0f;
    for (int64_t i = 0; i < COLUMNS; ++i) {
        most = largest[i] > most ? largest[i] : most;
        nothing += wrong[i];
    }
    const float scaled = most * (1.0f / 127.0f);
    const float step = scaled > SMALLEST ? scaled : SMALLEST;
    constexpr float EVEN = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest whole number, halves to even
    for (int64_t d = 0; d < in; ++d) whole[d] = int16_t(int32_t((x[d] / step + EVEN) - EVEN));
    for (int64_t d = in; d < padded(in); ++d) whole[d] = 0;
    return step + nothing;
}

// Four numbers of the output for each of `N` rows.
template <int N>
inline void four_whole(const int8_t* w, const int16_t* whole, int64_t in, Four* found) {
    Whole sums[N][OUTPUTS] = {};
    for (int64_t d = 0; d < in; d += COLUMNS, w += OUTPUTS * COLUMNS) {
        __builtin_prefetch(w + AHEAD);
        Wide x[N];
        for (int m = 0; m < N; ++m) x[m] = load<Wide>(whole + m * in + d);
        for (int n = 0; n < OUTPUTS; ++n) {
            const Wide weights = __builtin_convertvector(load<Narrow>(w + n * COLUMNS), Wide);
            for (int m = 0; m < N; ++m) sums[m][n] += products(weights, x[m]);
        }
    }
    for (int m = 0; m < N; ++m) found[m] = totals(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
}

// y = (P Q^T) * step(x) * step(W) + b, where P is x in whole numbers and Q the weight.
inline void map_whole(const Map& map, const float* x, float* y, int64_t rows, int64_t stride, Rounded room) {
    const int64_t in = padded(map.in), groups = (map.out + OUTPUTS - 1) / OUTPUTS;
    const auto *step = (const float*)map.step, *bias = (const float*)map.bias;
#pragma omp for schedule(static)
    for (int64_t m = 0; m < rows; ++m) room.step[m] = round_row(x + m * map.in, map.in, room.whole + m * in);

#pragma omp for schedule(static)
    for (int64_t group = 0; group < groups; ++group) {
        const int8_t* w = (const int8_t*)map.weight + group * OUTPUTS * in;
        for (int64_t m = 0; m < rows; m += 2) {
            Four found[2];
            const int64_t left = rows - m > 1 ? 2 : 1;
            if (left == 2)
                four_whole<2>(w, room.whole + m * in, in, found);
            else
                four_whole<1>(w, room.whole + m * in, in, found);
            for (int64_t p = 0; p < left; ++p)
                for (int64_t i = 0, n = group * OUTPUTS; i < OUTPUTS && n < map.out; ++i, ++n)
                    y[(m + p) * stride + n] =
                        float(found[p][i]) * step[n] * room.step[m + p] + (bias ? bias[n] : 0.0f);
        }
    }
}

// x [rows, in] lies row by row; the rows of y [rows, out] begin `stride` numbers apart.
inline void apply(const Map& map, const float* x, float* y, int64_t rows, int64_t stride, Rounded room) {
    if (map.kind == INT8)
        map_whole(map, x, y, rows, stride, room);
    else if (map.kind == BFLOAT16)
        map_numbers<float, Widened>(map, x, y, rows, stride);
    else
        map_numbers<float, Same<float>>(map, x, y, rows, stride);
}

inline void apply(const Map& map, const double* x, double* y, int64_t rows, int64_t stride, Rounded) {
    map_numbers<double, Same<double>>(map, x, y, rows, stride);
}

}  // namespace glassformer
