// Linear maps with W in 8 bits. The input is rounded to 8 bits too, as `rounded` (eight_bits.py) does it.

#pragma once

#include "tiles.h"

namespace glassformer {

constexpr float SMALLEST = 1e-30f;  // the smallest step: TINY of eight_bits.py

typedef Numbers<int32_t, 16>::Vector Sixteen;
typedef Numbers<int32_t, 8>::Vector Pairs;
typedef Numbers<int16_t, 16>::Vector Short;
typedef Numbers<int8_t, 16>::Vector Narrow;

// How x is multiplied: by 8-bit instructions, whose first factor has no sign, so that 128 is added to it, and 128 times
// the sum of its row of W taken off again; or else in 16 bits, where no sum can overflow, while those of AVX2's 8-bit
// instructions saturate.
#if defined(HAS_AVX512) && defined(__AVX512VNNI__)
#define HAS_VNNI
typedef uint8_t Factor;
constexpr int32_t ADDED = 128;
constexpr int64_t ROWS_IN_WHOLE = 8;  // of x at once
#else
typedef int16_t Factor;
constexpr int32_t ADDED = 0;
constexpr int64_t ROWS_IN_WHOLE = 3;
#endif

// Room for the rows of x in whole numbers.
struct Rounded {
    Factor* whole;
    float* step;
};

// Each group of W begins with what its sums begin with: 16 numbers, four of each row.
constexpr int64_t HEAD = sizeof(Sixteen);

constexpr int64_t bytes_of_group(int64_t in) { return HEAD + OUTPUTS * filled(in); }

#if !defined(HAS_VNNI)
inline Short widened(Narrow numbers) {
#if defined(HAS_AVX2)
    return (Short)_mm256_cvtepi8_epi16((__m128i)numbers);  // one instruction, where __builtin_convertvector takes four
#else
    return __builtin_convertvector(numbers, Short);
#endif
}

// The 16 products, added in pairs.
inline Pairs products(Short a, Short b) {
#if defined(HAS_AVX2)
    return (Pairs)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
    Pairs pairs;
    for (int i = 0; i < 8; ++i) pairs[i] = int32_t(a[2 * i]) * b[2 * i] + int32_t(a[2 * i + 1]) * b[2 * i + 1];
    return pairs;
#endif
}

inline Four<int32_t> totals(Pairs a, Pairs b, Pairs c, Pairs d) {
#if defined(HAS_AVX2)
    const __m256i first = _mm256_hadd_epi32((__m256i)a, (__m256i)b), second = _mm256_hadd_epi32((__m256i)c, (__m256i)d);
    const __m256i halves = _mm256_hadd_epi32(first, second);
    return (Four<int32_t>)_mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
#else
    Four<int32_t> sums = {};
    for (int i = 0; i < 8; ++i) sums += Four<int32_t>{a[i], b[i], c[i], d[i]};
    return sums;
#endif
}
#endif

// Writes a vector of whole numbers as factors.
inline void store_factors(Factor* to, Lanes<float> numbers) {
#if defined(HAS_VNNI)
    store(to, (Numbers<uint8_t, 16>::Vector)_mm512_cvtepi32_epi8(_mm512_cvtps_epi32((__m512)numbers)) + uint8_t(ADDED));
#elif defined(HAS_AVX512)
    store(to, _mm512_cvtepi32_epi16(_mm512_cvtps_epi32((__m512)numbers)));
#elif defined(HAS_AVX2)
    const __m256i whole = _mm256_cvtps_epi32((__m256)numbers);
    store(to, _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1)));
#else
    for (int i = 0; i < WIDTH<float>; ++i) to[i] = Factor(numbers[i]);
#endif
}

// Writes one row in whole numbers, as `rounded` (eight_bits.py) does it, zeros behind it, and returns its step; NaN if
// a number is not finite.
inline float round_row(const float* x, int64_t in, Factor* whole) {
    constexpr float EVEN = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest whole number, halves to even
    const int64_t vectors = in / WIDTH<float> * WIDTH<float>;
    float most = 0.0f, nothing = 0.0f;
    Lanes<float> largest = {}, wrong = {};
    for (int64_t d = 0; d < vectors; d += WIDTH<float>) {
        const auto size = (Lanes<float>)((Lanes<int32_t>)load<Lanes<float>>(x + d) & 0x7fffffff);
        largest = size > largest ? size : largest;
        wrong += size * 0.0f;
    }
    for (int i = 0; i < WIDTH<float>; ++i) most = std::max(most, largest[i]), nothing += wrong[i];
    for (int64_t d = vectors; d < in; ++d) most = std::max(most, std::fabs(x[d])), nothing += x[d] * 0.0f;

    const float step = std::max(most * (1.0f / 127.0f), SMALLEST);
    const auto nearest = [=](auto numbers) { return (numbers / step + EVEN) - EVEN; };
    for (int64_t d = 0; d < vectors; d += WIDTH<float>) store_factors(whole + d, nearest(load<Lanes<float>>(x + d)));
    for (int64_t d = vectors; d < filled(in); ++d) whole[d] = Factor(d < in ? int32_t(nearest(x[d])) + ADDED : ADDED);
    return step + nothing;
}

#if !defined(HAS_VNNI)
// The sums of `SIDE` outputs, from output `side` on, for each of `N` rows. As many weights are requested as are read.
template <int N, int SIDE>
inline void side_sums(const int8_t* w, const Factor* whole, int64_t in, int side, Pairs (*found)[OUTPUTS]) {
    const int8_t* next = w + side * in + (N == 1 ? AHEAD : FAR_AHEAD);
    Pairs sums[N][SIDE] = {};
    for (int64_t d = 0; d < in; d += COLUMNS, w += OUTPUTS * COLUMNS, next += SIDE * COLUMNS) {
        request(next);
        Short x[N];
        EACH for (int m = 0; m < N; ++m) x[m] = load<Short>(whole + m * in + d);
        EACH for (int m = 0; m < N; ++m) stays(x[m]);
        EACH for (int n = 0; n < SIDE; ++n) {
            const Short weights = widened(load<Narrow>(w + (side + n) * COLUMNS));
            EACH for (int m = 0; m < N; ++m) sums[m][n] += products(weights, x[m]);
        }
    }
    EACH for (int m = 0; m < N; ++m)
        EACH for (int n = 0; n < SIDE; ++n) found[m][side + n] = sums[m][n];
}
#endif

// Four numbers of the output for each of `N` rows.
template <int N>
__attribute__((noinline)) void four_whole(const int8_t* w, const Factor* whole, int64_t in, Four<int32_t>* found) {
#if defined(HAS_VNNI)
    __m512i sums[N];
    EACH for (int m = 0; m < N; ++m) sums[m] = _mm512_loadu_si512(w);
    w += HEAD;
    for (int64_t d = 0; d < in; d += COLUMNS, w += OUTPUTS * COLUMNS) {
        request(w + AHEAD);
        const __m512i weights = _mm512_loadu_si512(w);
        EACH for (int m = 0; m < N; ++m)
            sums[m] = _mm512_dpbusd_epi32(sums[m], _mm512_broadcast_i32x4(load<__m128i>(whole + m * in + d)), weights);
    }
    // Each row of W has four numbers side by side.
    EACH for (int m = 0; m < N; ++m) {
        const __m256i lower = _mm512_castsi512_si256(sums[m]), upper = _mm512_extracti64x4_epi64(sums[m], 1);
        const __m256i pairs = _mm256_hadd_epi32(lower, upper);  // 0 0 2 2 1 1 3 3
        const __m256i four = _mm256_hadd_epi32(pairs, pairs);   // 0 2 0 2 1 3 1 3
        const __m128i even = _mm256_castsi256_si128(four), odd = _mm256_extracti128_si256(four, 1);
        found[m] = (Four<int32_t>)_mm_unpacklo_epi32(even, odd);
    }
#else
    // Several rows take two outputs at a time: with six sums the multiplier of AVX2 is never idle, while with eight or
    // twelve it is for a fifth of the time.
    constexpr int SIDE = N == 1 ? OUTPUTS : 2;
    Pairs sums[N][OUTPUTS];
    EACH for (int side = 0; side < OUTPUTS; side += SIDE) side_sums<N, SIDE>(w + HEAD, whole, in, side, sums);
    EACH for (int m = 0; m < N; ++m) found[m] = totals(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
#endif
}

// y = (P Q^T) * step(x) * step(W) + b, where P is x in whole numbers and Q the weight.
inline void map_whole(Member& member, const Map& map, const float* x, float* y, int64_t rows, int64_t stride,
                      Rounded room) {
    const int64_t in = filled(map.in), bytes = bytes_of_group(map.in);
    const auto *step = (const float*)map.step, *bias = (const float*)map.bias;
    member.share(rows, [&](int64_t m, int64_t end) {
        for (; m < end; ++m) room.step[m] = round_row(x + m * map.in, map.in, room.whole + m * in);
    });
    const int64_t bytes_of_x = in * sizeof(Factor);
    each_tile<ROWS_IN_WHOLE>(member, map.out, rows, bytes_of_x, in, [&](int64_t group, int64_t row, auto n_rows) {
        const int64_t first = group * OUTPUTS, left = map.out - first;
        Four<int32_t> found[n_rows];
        four_whole<n_rows>((const int8_t*)map.weight + group * bytes, room.whole + row * in, in, found);
        const Four<float> steps = load_group(step + first, left), added = load_group(bias ? bias + first : bias, left);
        for (int64_t m = 0; m < n_rows; ++m) {
            const auto numbers = __builtin_convertvector(found[m], Four<float>);
            store_group<float>(y + (row + m) * stride + first, numbers * steps * room.step[row + m] + added, left);
        }
    });
}

}  // namespace glassformer
