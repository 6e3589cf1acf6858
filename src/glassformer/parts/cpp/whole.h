// Linear maps with W in 8 bits. The input is rounded to 8 bits too, as `rounded` (eight_bits.py) does it.

#pragma once

#include "tiles.h"

namespace glassformer {

constexpr float SMALLEST = 1e-30f;  // the smallest step: TINY of eight_bits.py

typedef int8_t Narrow __attribute__((vector_size(16)));
typedef int16_t Wide __attribute__((vector_size(32)));

// Room for the rows of x in whole numbers.
struct Rounded {
    int16_t* whole;
    float* step;
};

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

inline Wide narrowed(Whole first, Whole second) {
#if defined(__AVX2__)
    return (Wide)_mm256_permute4x64_epi64(_mm256_packs_epi32((__m256i)first, (__m256i)second), 0b11011000);
#else
    Wide both;
    for (int i = 0; i < 8; ++i) both[i] = int16_t(first[i]), both[i + 8] = int16_t(second[i]);
    return both;
#endif
}

// Writes one row in whole numbers, as `rounded` (eight_bits.py) does it, zeros behind it, and returns its step; NaN if
// a number is not finite.
inline float round_row(const float* x, int64_t in, int16_t* whole) {
    constexpr float EVEN = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest whole number, halves to even
    const int64_t pieces = in / COLUMNS * COLUMNS;
    float most = 0.0f, nothing = 0.0f;
    Lanes<float> largest = {}, wrong = {};
    for (int64_t d = 0; d < pieces; d += 8) {
        const auto size = (Lanes<float>)((Whole)load<Lanes<float>>(x + d) & 0x7fffffff);
        largest = size > largest ? size : largest;
        wrong += size * 0.0f;
    }
    for (int i = 0; i < 8; ++i) most = std::max(most, largest[i]), nothing += wrong[i];
    for (int64_t d = pieces; d < in; ++d) most = std::max(most, std::fabs(x[d])), nothing += x[d] * 0.0f;

    const float step = std::max(most * (1.0f / 127.0f), SMALLEST);
    const auto nearest = [=](auto numbers) { return (numbers / step + EVEN) - EVEN; };
    for (int64_t d = 0; d < pieces; d += COLUMNS) {
        const Lanes<float> first = nearest(load<Lanes<float>>(x + d)), second = nearest(load<Lanes<float>>(x + d + 8));
        store(whole + d, narrowed(__builtin_convertvector(first, Whole), __builtin_convertvector(second, Whole)));
    }
    for (int64_t d = pieces; d < filled(in, COLUMNS); ++d) whole[d] = d < in ? int16_t(nearest(x[d])) : 0;
    return step + nothing;
}

// Four numbers of the output for each of `N` rows.
template <int N>
__attribute__((noinline)) void four_whole(const int8_t* w, const int16_t* whole, int64_t in, Four<int32_t>::Numbers* found) {
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
        const int64_t first = group * OUTPUTS, left = map.out - first;
        Four<int32_t>::Numbers found[2];
        const int8_t* w = (const int8_t*)map.weight + first * in;
        if (n_rows == 2)
            four_whole<2>(w, room.whole + row * in, in, found);
        else
            four_whole<1>(w, room.whole + row * in, in, found);
        const auto steps = load_group(step + first, left), added = load_group(bias ? bias + first : bias, left);
        for (int64_t m = 0; m < n_rows; ++m) {
            const auto numbers = __builtin_convertvector(found[m], Four<float>::Numbers);
            store_group(y + (row + m) * stride + first, numbers * steps * room.step[row + m] + added, left);
        }
    });
}

}  // namespace glassformer
