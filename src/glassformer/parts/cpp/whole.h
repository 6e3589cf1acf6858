// Linear maps with W in 8 bits. The input is rounded to 8 bits too, as `rounded` (eight_bits.py) does it.

#pragma once

#include "tiles.h"

namespace glassformer {

typedef Numbers<int32_t, 16>::Vector Sixteen;
typedef Numbers<int32_t, 8>::Vector Pairs;  // sums of pairs of products, or whole sums
typedef Numbers<int16_t, 16>::Vector Short;
typedef Numbers<int8_t, 16>::Vector Narrow;

// How x is multiplied: by 8-bit instructions, whose first factor has no sign, so that 128 is added to it, and 128 times
// the sum of its row of W taken off again; or else in 16 bits, where no sum can overflow, while those of AVX2's 8-bit
// instructions saturate. A piece of W is multiplied in parts, each of which has its sums for every row of x; several
// rows take `SIDE` parts at a time: with six or eight sums the multiplier of AVX2 is never idle, with more it often is.
#if defined(HAS_AVX512) && defined(__AVX512VNNI__)
#define HAS_VNNI
typedef uint8_t Factor;
typedef Sixteen Part;
constexpr int32_t ADDED = 128;
constexpr int PARTS = 1, SIDE = 1, ROWS_IN_WHOLE = 8;
#else
typedef int16_t Factor;
typedef Pairs Part;  // two sums for each of four outputs
constexpr int32_t ADDED = 0;
constexpr int PARTS = 4, SIDE = 2, ROWS_IN_WHOLE = 4;
#endif
constexpr int64_t QUAD = 4;            // numbers of a row in a piece
constexpr int64_t NEAR_IN_WHOLE = 16;  // rows of x that are multiplied by a group of W while it is near
constexpr int64_t STRETCH = 512;       // columns of them
constexpr int64_t FAR_AHEAD = 6144;    // `AHEAD` where several rows are multiplied, which takes longer
static_assert(GROUP * QUAD == PIECE && STRETCH % FILLED == 0 && FILLED % (2 * QUAD) == 0 && PARTS % SIDE == 0);

// Room for the rows of x in whole numbers.
struct Rounded {
    Factor* whole;
    float* step;
};

// The sums of one row of x for a group of outputs.
struct Sums {
    Part part[PARTS];
};

// Each group of W begins with what its sums begin with.
constexpr int64_t HEAD = sizeof(Sixteen);
static_assert(HEAD == GROUP * sizeof(int32_t));

constexpr int64_t bytes_of_group(int64_t in) { return HEAD + GROUP * filled(in); }

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

// The sums of eight outputs, of which there are two each.
inline Pairs totals(Pairs a, Pairs b) {
#if defined(HAS_AVX2)
    return (Pairs)_mm256_permute4x64_epi64(_mm256_hadd_epi32((__m256i)a, (__m256i)b), 0xd8);
#else
    Pairs sums;
    for (int i = 0; i < 4; ++i) sums[i] = a[2 * i] + a[2 * i + 1], sums[i + 4] = b[2 * i] + b[2 * i + 1];
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
    const int64_t vectors = in / WIDTH<float> * WIDTH<float>;
    const float most = largest(x, in);
    if (most != most) {  // as whole numbers they are not defined, and the answer is no number anyway
        for (int64_t d = 0; d < filled(in); ++d) whole[d] = Factor(ADDED);
        return most;
    }
    const float step = step_for(most);
    for (int64_t d = 0; d < vectors; d += WIDTH<float>)
        store_factors(whole + d, nearest<float>(load<Lanes<float>>(x + d) / step));
    for (int64_t d = vectors; d < filled(in); ++d)
        whole[d] = Factor((d < in ? int32_t(std::nearbyint(x[d] / step)) : 0) + ADDED);
    return step;
}

// One part of a piece of W, and four numbers of x, as often as there are outputs in it.
#if defined(HAS_VNNI)
inline __m512i part_of(const int8_t* w) { return _mm512_loadu_si512(w); }
inline __m512i four_of(const Factor* x) { return _mm512_set1_epi32(load<int32_t>(x)); }
inline Part plus(Part sums, __m512i w, __m512i x) { return (Part)_mm512_dpbusd_epi32((__m512i)sums, x, w); }
#else
inline Short part_of(const int8_t* w) { return widened(load<Narrow>(w)); }
inline Short four_of(const Factor* x) { return (Short)(Numbers<int64_t, 4>::Vector{} + load<int64_t>(x)); }
inline Part plus(Part sums, Short w, Short x) { return sums + products(w, x); }
#endif

// Adds products of `columns` columns to the sums of `N` rows, whose numbers begin `apart` ones apart: for `PER` parts,
// from `first` on. As many weights are requested as are read.
template <int N, int PER>
inline void add_side(const int8_t* w, const Factor* x, int64_t apart, int64_t columns, int first, Sums* all) {
    constexpr int64_t BYTES_OF_PART = PIECE / PARTS;
    const int8_t* next = w + first * BYTES_OF_PART * (columns / QUAD) + (N == 1 ? AHEAD : FAR_AHEAD);
    Part sums[N][PER];
    EACH for (int m = 0; m < N; ++m)
        EACH for (int n = 0; n < PER; ++n) sums[m][n] = all[m].part[first + n];
    for (int64_t d = 0; d < columns; d += 2 * QUAD, w += 2 * PIECE, next += 2 * BYTES_OF_PART * PER)
        EACH for (int half = 0; half < 2; ++half) {
            if (half == 0 || PER == PARTS) request(next + half * PIECE);
            decltype(part_of(w)) weights[PER];
            EACH for (int n = 0; n < PER; ++n)
                weights[n] = part_of(w + half * PIECE + (first + n) * BYTES_OF_PART);
            EACH for (int m = 0; m < N; ++m) {
                const auto numbers = four_of(x + m * apart + d + half * QUAD);
                EACH for (int n = 0; n < PER; ++n) sums[m][n] = plus(sums[m][n], weights[n], numbers);
            }
        }
    EACH for (int m = 0; m < N; ++m)
        EACH for (int n = 0; n < PER; ++n) all[m].part[first + n] = sums[m][n];
}

template <int N>
__attribute__((noinline)) void add_whole(const int8_t* w, const Factor* x, int64_t apart, int64_t columns, Sums* all) {
    constexpr int PER = N == 1 ? PARTS : SIDE;
    for (int first = 0; first < PARTS; first += PER) add_side<N, PER>(w, x, apart, columns, first, all);
}

// y = (P Q^T) * step(x) * step(W) + b, where P is x in whole numbers and Q the weight.
inline void map_whole(Member& member, const Map& map, const float* x, float* y, int64_t rows, int64_t stride,
                      Rounded room) {
    const int64_t in = filled(map.in), bytes = bytes_of_group(map.in);
    const auto *step = (const float*)map.step, *bias = (const float*)map.bias;
    member.share(rows, [&](int64_t m, int64_t end) {
        for (; m < end; ++m) room.step[m] = round_row(x + m * map.in, map.in, room.whole + m * in);
    });
    each_block(member, map.out, GROUP, bytes, rows, NEAR_IN_WHOLE, [&](int64_t group, int64_t row, int64_t n) {
        const auto* w = (const int8_t*)map.weight + group * bytes;
        Sums sums[NEAR_IN_WHOLE];
        for (int64_t m = 0; m < n; ++m) sums[m] = ADDED ? load<Sums>(w) : Sums{};
        for (int64_t d = 0; d < in; d += STRETCH)
            each_tile<ROWS_IN_WHOLE>(n, [&](int64_t m, auto some) {
                const Factor* from = room.whole + (row + m) * in + d;
                add_whole<some>(w + HEAD + d * GROUP, from, in, std::min(STRETCH, in - d), sums + m);
            });
        for (int64_t first = group * GROUP; first < std::min(map.out, (group + 1) * GROUP); first += 8) {
            const int64_t left = map.out - first, half = first / 8 % 2;
            const auto steps = load_some<Eight>(step + first, left);
            const auto added = load_some<Eight>(bias ? bias + first : bias, left);
            for (int64_t m = 0; m < n; ++m) {
#if defined(HAS_VNNI)
                const auto found = load<Pairs>((const int32_t*)(sums + m) + 8 * half);
#else
                const auto found = totals(sums[m].part[2 * half], sums[m].part[2 * half + 1]);
#endif
                const auto numbers = __builtin_convertvector(found, Eight);
                store_some(y + (row + m) * stride + first, numbers * steps * room.step[row + m] + added, left);
            }
        }
    });
}

}  // namespace glassformer
