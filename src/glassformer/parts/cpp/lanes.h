// Vectors of 32 bytes: what one instruction of AVX2 works on. Elsewhere the compiler takes two or more instructions.

#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <new>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace glassformer {

template <typename T>
struct Of;
template <>
struct Of<float> {
    typedef float Lanes __attribute__((vector_size(32)));
};
template <>
struct Of<double> {
    typedef double Lanes __attribute__((vector_size(32)));
};
template <typename T>
using Lanes = typename Of<T>::Lanes;
template <typename T>
constexpr int64_t WIDTH = 32 / sizeof(T);

typedef int32_t Whole __attribute__((vector_size(32)));

template <typename T>
struct Four {
    typedef T Numbers __attribute__((vector_size(4 * sizeof(T))));
};

template <typename Vector, typename Number>
inline Vector load(const Number* from) {
    Vector vector;
    __builtin_memcpy(&vector, from, sizeof vector);
    return vector;
}

template <typename Vector, typename Number>
inline void store(Number* to, Vector vector) {
    __builtin_memcpy(to, &vector, sizeof vector);
}

// A short loop, written out by the compiler: only then do arrays of sums become registers.
#define EACH _Pragma("GCC unroll 4")

// Each load from memory takes a turn: what is used several times is to stay in a register, which the compiler would not
// see to by itself.
template <typename Vector>
inline void stays(Vector& vector) {
#if defined(__AVX2__)
    asm("" : "+x"(vector));
#endif
}

// Room for n numbers and a vector more, none of whose vectors lies in two lines of the processor's cache.
template <typename T>
struct Room {
    T* data;
    explicit Room(int64_t n) : data(new (std::align_val_t(64)) T[n + 32]) {}
    ~Room() { ::operator delete[](data, std::align_val_t(64)); }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
};

// a * b + c, rounded once where the processor can.
inline Lanes<float> fused(Lanes<float> a, Lanes<float> b, Lanes<float> c) {
#if defined(__AVX2__) && defined(__FMA__)
    return (Lanes<float>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

inline Lanes<double> fused(Lanes<double> a, Lanes<double> b, Lanes<double> c) {
#if defined(__AVX2__) && defined(__FMA__)
    return (Lanes<double>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    return a * b + c;
#endif
}

// The sum of a vector's numbers, always in the same order, which is that of `totals`.
inline float total(Lanes<float> v) {
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}
inline double total(Lanes<double> v) { return (v[0] + v[1]) + (v[2] + v[3]); }

// The sum of each of four vectors.
inline Four<float>::Numbers totals(Lanes<float> a, Lanes<float> b, Lanes<float> c, Lanes<float> d) {
#if defined(__AVX2__)
    const __m256 halves = _mm256_hadd_ps(_mm256_hadd_ps((__m256)a, (__m256)b), _mm256_hadd_ps((__m256)c, (__m256)d));
    return (Four<float>::Numbers)_mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
#else
    const Four<float>::Numbers sums = {total(a), total(b), total(c), total(d)};
    return sums;
#endif
}

inline Four<double>::Numbers totals(Lanes<double> a, Lanes<double> b, Lanes<double> c, Lanes<double> d) {
    const Four<double>::Numbers sums = {total(a), total(b), total(c), total(d)};
    return sums;
}

inline Four<int32_t>::Numbers totals(Whole a, Whole b, Whole c, Whole d) {
#if defined(__AVX2__)
    const __m256i halves = _mm256_hadd_epi32(_mm256_hadd_epi32((__m256i)a, (__m256i)b),
                                             _mm256_hadd_epi32((__m256i)c, (__m256i)d));
    return (Four<int32_t>::Numbers)_mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
#else
    Four<int32_t>::Numbers sums = {};
    for (int i = 0; i < 8; ++i) sums += Four<int32_t>::Numbers{a[i], b[i], c[i], d[i]};
    return sums;
#endif
}

// The sum of a[i] * b[i] for one vector a and `N` vectors b, `apart` numbers from each other.
template <typename T, int N>
inline void dots(const T* a, const T* b, int64_t apart, int64_t n, T* found) {
    Lanes<T> sums[4] = {};
    int64_t i = 0;
    for (; i + WIDTH<T> <= n; i += WIDTH<T>)
        EACH for (int k = 0; k < N; ++k)
            sums[k] = fused(load<Lanes<T>>(a + i), load<Lanes<T>>(b + k * apart + i), sums[k]);
    const auto four = totals(sums[0], sums[1], sums[2], sums[3]);
    EACH for (int k = 0; k < N; ++k) found[k] = four[k];
    for (; i < n; ++i)
        for (int k = 0; k < N; ++k) found[k] += a[i] * b[k * apart + i];
}

template <typename T>
inline T dot(const T* a, const T* b, int64_t n) {
    T found;
    dots<T, 1>(a, b, 0, n, &found);
    return found;
}

// e^x, to about one rounding: e^x = 2^n e^r with |r| <= log(2) / 2, and e^r by its series. Exactly 0 below -87.
inline Lanes<float> exponential(Lanes<float> x) {
    constexpr float EVEN = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest whole number
    const Lanes<float> low = Lanes<float>{} - 87.0f, high = Lanes<float>{} + 88.0f;
    const Whole vanishes = x < low;
    x = vanishes ? low : x;
    x = x > high ? high : x;
    const Lanes<float> n = (x * 1.44269504f + EVEN) - EVEN;
    const Lanes<float> r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // log(2) in two parts: no rounding in the first
    Lanes<float> y = Lanes<float>{} + 1.0f / 5040;
    for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) y = fused(y, r, Lanes<float>{} + c);
    y *= (Lanes<float>)((__builtin_convertvector(n, Whole) + 127) << 23);
    return vanishes ? Lanes<float>{} : y;
}

inline Lanes<double> exponential(Lanes<double> x) {
    for (int i = 0; i < 4; ++i) x[i] = std::exp(x[i]);
    return x;
}

}  // namespace glassformer
