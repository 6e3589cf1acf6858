// Linear maps for few rows, y = x W^T + b, with W in the numbers of x, in bfloat16 or in 8 bits.
//
// Writing one text reads every weight once per token, so reading takes the time, and the next weights are always
// requested before they are needed. Each row of x is summed in an order of its own: what it gets does not depend on the
// rows beside it, nor on the number of threads.
//
// These functions are called by all threads of a parallel region, which share the work; each ends with a barrier.

#pragma once

#include <omp.h>

#include <algorithm>

#include "lanes.h"

namespace glassformer {

enum Kind : int64_t { AS_X = 0, BFLOAT16 = 1, INT8 = 2 };  // NUMBERS of native.py

// W [out, in] lies row by row if it has the numbers of x. Else it lies in groups of four rows, each group in pieces of
// 16 bytes of each row, filled up with zeros: in the order of use. In 8 bits every row has its step. A bias may be
// missing.
struct Map {
    int64_t kind, in, out;
    const void *weight, *step, *bias;
};

constexpr int64_t OUTPUTS = 4;   // rows of W multiplied at once: with 3 rows of x, all sums stay in registers
constexpr int64_t AHEAD = 2048;  // bytes of W requested before they are needed, where they lie in the order of use
constexpr int64_t HALVES = 8, COLUMNS = 16;  // numbers in a piece: of bfloat16, of 8 bits
constexpr int64_t NEAR = 16384, CLOSE = 131072;  // bytes that stay in the first and in the second cache of a processor
constexpr float SMALLEST = 1e-30f;               // the smallest step: TINY of eight_bits.py

typedef int8_t Narrow __attribute__((vector_size(16)));
typedef int16_t Wide __attribute__((vector_size(32)));
typedef int32_t Four __attribute__((vector_size(16)));

constexpr int64_t filled(int64_t in, int64_t piece) { return (in + piece - 1) / piece * piece; }

// Calls tile(group, row, n) for all groups of outputs and up to `most` rows each, in an order in which rows of x stay
// near while close rows of W are multiplied by them. Each thread takes a range of the outputs.
template <typename Tile>
inline void each_tile(int64_t out, int64_t rows, int64_t most, int64_t bytes_of_x, int64_t bytes_of_w, Tile tile) {
    const int64_t groups = (out + OUTPUTS - 1) / OUTPUTS, threads = omp_get_num_threads(), me = omp_get_thread_num();
    const int64_t begin = groups * me / threads, end = groups * (me + 1) / threads;
    const int64_t near = std::max(most, NEAR / bytes_of_x / most * most);
    const int64_t close = std::max<int64_t>(1, CLOSE / (OUTPUTS * bytes_of_w));
    for (int64_t from = begin; from < end; from += close)
        for (int64_t above = 0; above < rows; above += near)
            for (int64_t group = from; group < std::min(end, from + close); ++group)
                for (int64_t row = above; row < std::min(rows, above + near); row += most)
                    tile(group, row, std::min(most, std::min(rows, above + near) - row));
#pragma omp barrier
}

// Room for the rows of x in whole numbers.
struct Rounded {
    int16_t* whole;
    float* step;
};

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

// Each load from memory takes a turn: what is used several times is to stay in a register, which the compiler would not
// see to by itself.
template <typename Vector>
inline void stays(Vector& vector) {
#if defined(__AVX2__)
    asm("" : "+x"(vector));
#endif
}

// A short loop, written out by the compiler: only then do arrays of sums become registers.
#define EACH _Pragma("GCC unroll 4")

// Four numbers of the output for each of `N` rows of x.
template <typename T, typename Weights, int N>
__attribute__((noinline)) void four_sums(const Weights& w, const T* x, int64_t in, T (*found)[OUTPUTS]) {
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
    EACH for (int m = 0; m < N; ++m)
        EACH for (int n = 0; n < OUTPUTS; ++n) found[m][n] = total(sums[m][n]);
    for (; d < in; ++d)
        EACH for (int m = 0; m < N; ++m)
            EACH for (int n = 0; n < OUTPUTS; ++n) found[m][n] += w.number(n, d) * x[m * in + d];
}

template <typename T, typename Weights>
void map_numbers(const Map& map, const T* x, T* y, int64_t rows, int64_t stride) {
    const T* bias = (const T*)map.bias;
    const int64_t in = map.in, bytes_of_w = in * sizeof(typename Weights::Stored);
    each_tile(map.out, rows, 3, in * sizeof(T), bytes_of_w, [&](int64_t group, int64_t row, int64_t n_rows) {
        T found[3][OUTPUTS];
        const Weights w(map, group);
        if (n_rows == 3)
            four_sums<T, Weights, 3>(w, x + row * in, in, found);
        else if (n_rows == 2)
            four_sums<T, Weights, 2>(w, x + row * in, in, found);
        else
            four_sums<T, Weights, 1>(w, x + row * in, in, found);
        for (int64_t m = 0; m < n_rows; ++m)
            for (int64_t n = group * OUTPUTS, i = 0; i < OUTPUTS && n < map.out; ++i, ++n)
                y[(row + m) * stride + n] = found[m][i] + (bias ? bias[n] : T(0));
    });
}

inline Wide widened(Narrow numbers) {
#if defined(__AVX2__)
    return (Wide)_mm256_cvtepi8_epi16((__m128i)numbers);  // one instruction, where __builtin_convertvector takes four
#else
    return __builtin_convertvector(numbers, Wide);
#endif
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
    for (int64_t d = in; d < filled(in, COLUMNS); ++d) whole[d] = 0;
    return step + nothing;
}

// Four numbers of the output for each of `N` rows.
template <int N>
__attribute__((noinline)) void four_whole(const int8_t* w, const int16_t* whole, int64_t in, Four* found) {
    Whole sums[N][OUTPUTS] = {};
    for (int64_t d = 0; d < in; d += COLUMNS, w += OUTPUTS * COLUMNS) {
        __builtin_prefetch(w + AHEAD);
        Wide x[N];
        EACH for (int m = 0; m < N; ++m) x[m] = load<Wide>(whole + m * in + d);
        EACH for (int m = 0; m < N; ++m) stays(x[m]);
        EACH for (int n = 0; n < OUTPUTS; ++n) {
            const Wide weights = widened(load<Narrow>(w + n * COLUMNS));
            EACH for (int m = 0; m < N; ++m) sums[m][n] += products(weights, x[m]);
        }
    }
    EACH for (int m = 0; m < N; ++m) found[m] = totals(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
}

// y = (P Q^T) * step(x) * step(W) + b, where P is x in whole numbers and Q the weight.
inline void map_whole(const Map& map, const float* x, float* y, int64_t rows, int64_t stride, Rounded room) {
    const int64_t in = filled(map.in, COLUMNS);
    const auto *step = (const float*)map.step, *bias = (const float*)map.bias;
#pragma omp for schedule(static)
    for (int64_t m = 0; m < rows; ++m) room.step[m] = round_row(x + m * map.in, map.in, room.whole + m * in);

    each_tile(map.out, rows, 2, 2 * in, in, [&](int64_t group, int64_t row, int64_t n_rows) {
        Four found[2];
        const int8_t* w = (const int8_t*)map.weight + group * OUTPUTS * in;
        if (n_rows == 2)
            four_whole<2>(w, room.whole + row * in, in, found);
        else
            four_whole<1>(w, room.whole + row * in, in, found);
        for (int64_t m = 0; m < n_rows; ++m)
            for (int64_t n = group * OUTPUTS, i = 0; i < OUTPUTS && n < map.out; ++i, ++n)
                y[(row + m) * stride + n] =
                    float(found[m][i]) * step[n] * room.step[row + m] + (bias ? bias[n] : 0.0f);
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
