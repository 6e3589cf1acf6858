// How four numbers of x, in 8 bits, are multiplied by four of W, for many outputs at once: the ways of different
// processors. All give the same sums, which are exact.
//
// A way says how the numbers of x lie (`put`, eight at a time, and no byte more), what is added to all sums of a row of
// x (`of_row`) and of an output (`of_output`, a sum over its quads), and how quads are multiplied (`plus`).

#pragma once

#include "tiles.h"

namespace glassformer {

constexpr int64_t QUAD = 4;  // numbers of a row in a piece
typedef Numbers<int32_t, 8>::Vector Whole;
typedef Numbers<int16_t, 16>::Vector Short;

// Sums are without a sign, as they may overflow on their way to a result that does not.
typedef Numbers<uint32_t, 8>::Vector Half;

#if defined(HAS_AVX512) && defined(__AVX512VNNI__)

// By instructions whose first factor has no sign: 128 is added to x, and 128 times the sum of its row of W taken off.
struct Unsigned {
    typedef Numbers<uint32_t, 16>::Vector Part;
    static constexpr int64_t BYTES_OF_NUMBER = 1, ROWS = 8;
    static void put(int8_t* to, Whole x) { _mm_storel_epi64((__m128i*)to, _mm256_cvtepi32_epi8((__m256i)(x + 128))); }
    static uint32_t of_row(const int8_t*, int64_t) { return 0; }
    static uint32_t of_output(const int8_t* w) { return -128 * (w[0] + w[1] + w[2] + w[3]); }
    static __m512i weights(const int8_t* w) { return _mm512_loadu_si512(w); }
    static __m512i numbers(const int8_t* x) { return _mm512_set1_epi32(load<int32_t>(x)); }
    static Part plus(Part sums, __m512i w, __m512i x) { return (Part)_mm512_dpbusd_epi32((__m512i)sums, x, w); }
};
typedef Unsigned Way;

#else

// In 16 bits, as sums of pairs of products in 8 bits do not fit there. AVX2 multiplies once where it adds twice or
// more, so half of the products are made sums (Winograd 1968, "A new algorithm for inner product", equation 1):
// x0 w0 + x1 w1 = (x0 + w1) (x1 + w0) - x0 x1 - w0 w1.
struct Pairs {
    typedef Half Part;
    static constexpr int64_t BYTES_OF_NUMBER = 2, ROWS = 4;
    struct Both {
        Short first, second;  // of each pair
    };

    static Part products(Short a, Short b) {  // added in pairs
#if defined(HAS_AVX2)
        return (Part)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
        Part sums;
        for (int i = 0; i < 8; ++i) sums[i] = int32_t(a[2 * i]) * b[2 * i] + int32_t(a[2 * i + 1]) * b[2 * i + 1];
        return sums;
#endif
    }
    // The first numbers of a quad's two pairs lie before the second ones.
    static void put(int8_t* to, Whole x) {
#if defined(HAS_AVX2)
        const __m128i low = _mm256_castsi256_si128((__m256i)x), high = _mm256_extracti128_si256((__m256i)x, 1);
        const __m128i eight = _mm_packs_epi32(low, high);
        store(to, _mm_shufflehi_epi16(_mm_shufflelo_epi16(eight, 0xd8), 0xd8));
#else
        for (int i : {0, 2, 1, 3, 4, 6, 5, 7}) store(to, int16_t(x[i])), to += 2;
#endif
    }
    static uint32_t of_row(const int8_t* x, int64_t n) {
        Part sums = {};
        int64_t d = 0;
        for (; d + 16 <= n; d += 16) {  // shifted, the second ones lie where the first ones are, and zeros elsewhere
            const auto all = load<Numbers<uint64_t, 4>::Vector>(x + 2 * d);
            sums += products((Short)all, (Short)(all >> 32));
        }
        uint32_t sum = 0;
        for (int i = 0; i < 8; ++i) sum += sums[i];
        for (; d < n; d += QUAD) {
            const auto quad = load<Numbers<int16_t, 4>::Vector>(x + 2 * d);
            sum += quad[0] * quad[2] + quad[1] * quad[3];
        }
        return -sum;
    }
    static uint32_t of_output(const int8_t* w) { return -(w[0] * w[1] + w[2] * w[3]); }
    static Both weights(const int8_t* w) {
        const Short both = load<Short>(w);
        return {both << 8 >> 8, both >> 8};
    }
    static Both numbers(const int8_t* x) {
        return {(Short)(Whole{} + load<int32_t>(x)), (Short)(Whole{} + load<int32_t>(x + 4))};
    }
    static Part plus(Part sums, const Both& w, const Both& x) {
        return sums + products(w.second + x.first, w.first + x.second);
    }
};
typedef Pairs Way;

#endif

}  // namespace glassformer
