// Vectors: what one instruction of AVX-512 or AVX2 works on. Elsewhere the compiler takes two or more instructions.

#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <type_traits>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define HAS_AVX2
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define HAS_AVX512
#endif
#endif

namespace glassformer {

#if defined(HAS_AVX512)
constexpr int64_t BYTES = 64;
#else
constexpr int64_t BYTES = 32;
#endif

template <typename T, int64_t N>
struct Numbers {
    typedef T Vector __attribute__((vector_size(N * sizeof(T))));
};
template <typename T>
constexpr int64_t WIDTH = BYTES / sizeof(T);
template <typename T>
using Lanes = typename Numbers<T, WIDTH<T>>::Vector;
template <typename T>
using Four = typename Numbers<T, 4>::Vector;

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

// Up to n numbers of a vector, as the others lie behind an end. From no address come zeros.
template <typename Vector, typename Number>
inline void store_some(Number* to, Vector numbers, int64_t n) {
    constexpr int64_t all = sizeof(Vector) / sizeof(Number);
    if (n >= all)
        store(to, numbers);
    else
        for (int64_t i = 0; i < n; ++i) to[i] = numbers[i];
}
template <typename Vector, typename Number>
inline Vector load_some(const Number* from, int64_t n) {
    constexpr int64_t all = sizeof(Vector) / sizeof(Number);
    Vector numbers = {};
    if (from && n >= all) return load<Vector>(from);
    if (from)
        for (int64_t i = 0; i < n; ++i) numbers[i] = from[i];
    return numbers;
}

// A vector whose numbers are all x: one instruction, while 0 + x takes another, because it turns -0 into 0.
template <typename T>
inline Lanes<T> all(T x) {
    return x - Lanes<T>{};
}

// A short loop, written out by the compiler: only then do arrays of sums become registers.
#define EACH _Pragma("GCC unroll 8")

// Each load from memory takes a turn: what is used several times is to stay in a register, which the compiler would not
// see to by itself.
template <typename Vector>
inline void stays([[maybe_unused]] Vector& vector) {
#if defined(HAS_AVX512)
    asm("" : "+v"(vector));
#elif defined(HAS_AVX2)
    asm("" : "+x"(vector));
#endif
}

// Room for n numbers and a vector more, none of whose vectors lies in two lines of the processor's cache.
template <typename T>
struct Room {
    T* data;
    explicit Room(int64_t n) : data(new (std::align_val_t(64)) T[n + BYTES]) {}
    ~Room() { ::operator delete[](data, std::align_val_t(64)); }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
};

// a * b + c, rounded once where the processor can.
inline Lanes<float> fused(Lanes<float> a, Lanes<float> b, Lanes<float> c) {
#if defined(HAS_AVX512)
    return (Lanes<float>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(HAS_AVX2)
    return (Lanes<float>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

inline Lanes<double> fused(Lanes<double> a, Lanes<double> b, Lanes<double> c) {
#if defined(HAS_AVX512)
    return (Lanes<double>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(HAS_AVX2)
    return (Lanes<double>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    return a * b + c;
#endif
}

typedef Numbers<float, 8>::Vector Eight;

// A vector of eight numbers, which has the same total.
inline Eight eight(Lanes<float> v) {
#if defined(HAS_AVX512)
    return (Eight)_mm512_castps512_ps256((__m512)v) + (Eight)_mm512_extractf32x8_ps((__m512)v, 1);
#else
    return v;
#endif
}

// The sum of a vector's numbers, always in the same order, which is that of `totals`.
inline float total(Lanes<float> v) {
    const Eight s = eight(v);
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}
inline double total(Lanes<double> v) {
    double sum = 0;
    for (int i = 0; i < WIDTH<double>; ++i) sum += v[i];
    return sum;
}

// The sum of each of four vectors.
inline Four<float> totals(Lanes<float> a, Lanes<float> b, Lanes<float> c, Lanes<float> d) {
#if defined(HAS_AVX2)
    const __m256 first = _mm256_hadd_ps((__m256)eight(a), (__m256)eight(b));
    const __m256 halves = _mm256_hadd_ps(first, _mm256_hadd_ps((__m256)eight(c), (__m256)eight(d)));
    return (Four<float>)_mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
#else
    return Four<float>{total(a), total(b), total(c), total(d)};
#endif
}
inline Four<double> totals(Lanes<double> a, Lanes<double> b, Lanes<double> c, Lanes<double> d) {
    return Four<double>{total(a), total(b), total(c), total(d)};
}

// A vector of numbers that lie in memory as they are, or in 8 bits.
template <typename T>
inline Lanes<T> wide(const T* from) {
    return load<Lanes<T>>(from);
}
template <typename T>
inline Lanes<T> wide(const int8_t* from) {
#if defined(HAS_AVX512)
    if constexpr (sizeof(T) == 4) return (Lanes<T>)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load<__m128i>(from)));
#elif defined(HAS_AVX2)
    if constexpr (sizeof(T) == 4)
        return (Lanes<T>)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)from)));
#endif
    return __builtin_convertvector(load<typename Numbers<int8_t, WIDTH<T>>::Vector>(from), Lanes<T>);
}

// The sum of a[i] * b[i] for one vector a and `N` vectors b = from(0), from(1), ...
template <typename T, int N, typename From>
inline void dots(const T* a, From from, int64_t n, T* found) {
    Lanes<T> sums[4] = {};
    decltype(from(0)) b[N];
    EACH for (int k = 0; k < N; ++k) b[k] = from(k);
    int64_t i = 0;
    for (; i + WIDTH<T> <= n; i += WIDTH<T>)
        EACH for (int k = 0; k < N; ++k)
            sums[k] = fused(load<Lanes<T>>(a + i), wide<T>(b[k] + i), sums[k]);
    const Four<T> four = totals(sums[0], sums[1], sums[2], sums[3]);
    EACH for (int k = 0; k < N; ++k) found[k] = four[k];
    for (; i < n; ++i)
        for (int k = 0; k < N; ++k) found[k] += a[i] * b[k][i];
}

template <typename T>
inline T dot(const T* a, const T* b, int64_t n) {
    T found;
    dots<T, 1>(a, [=](int) { return b; }, n, &found);
    return found;
}

// The largest size of n numbers; NaN if one is not finite.
template <typename T>
inline T largest(const T* x, int64_t n) {
    Lanes<T> most = {}, wrong = {};
    const auto see = [&](Lanes<T> numbers) {
        const Lanes<T> size = numbers < T(0) ? -numbers : numbers;
        most = size > most ? size : most;
        wrong += size * T(0);
    };
    int64_t i = 0;
    for (; i + WIDTH<T> <= n; i += WIDTH<T>) see(load<Lanes<T>>(x + i));
    for (; i < n; ++i) see(all<T>(x[i]));
    T found = 0;
    for (i = 0; i < WIDTH<T>; ++i) found = most[i] > found ? most[i] : found;
    return found + total(wrong);
}

// The step of numbers in 8 bits, the largest of which is of this size, as `rounded` (eight_bits.py) has it.
inline float step_for(float most) { return std::fmax(most * (1.0f / 127.0f), 1e-30f); }

// The nearest whole numbers, of two the even one, for numbers that are not large.
template <typename Vector>
inline Vector nearest(Vector x) {
    typedef std::decay_t<decltype(x[0])> T;
    constexpr T EVEN = sizeof(T) == 4 ? T(12582912) : T(6755399441055744);  // 1.5 * 2^23 or 2^52
    return (x + EVEN) - EVEN;
}

// e^x, to about one rounding: e^x = 2^n e^r with |r| <= log(2) / 2, and e^r by its series. It is 0 below -87 and
// infinite above 88.
inline Lanes<float> exponential(Lanes<float> x) {
    typedef Lanes<int32_t> Whole;
    const Lanes<float> low = Lanes<float>{} - 87.0f, high = Lanes<float>{} + 88.0f;
    const Whole vanishes = x < low, exceeds = x > high;
    x = vanishes ? low : x;
    x = exceeds ? high : x;
    const Lanes<float> n = nearest(x * 1.44269504f);
    // log(2) in two parts, so that nothing is rounded in the first
    const Lanes<float> r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    Lanes<float> y = Lanes<float>{} + 1.0f / 5040;
    for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) y = fused(y, r, Lanes<float>{} + c);
    y *= (Lanes<float>)((__builtin_convertvector(n, Whole) + 127) << 23);
    y = exceeds ? Lanes<float>{} + INFINITY : y;
    return vanishes ? Lanes<float>{} : y;
}

inline Lanes<double> exponential(Lanes<double> x) {
    for (int i = 0; i < WIDTH<double>; ++i) x[i] = std::exp(x[i]);
    return x;
}

}  // namespace glassformer
