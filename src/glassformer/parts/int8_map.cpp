// A linear map in 8-bit integers for CPUs whose libraries have no exact one: y = (P Q^T) * step(x) * step(W) + b.
//
// P is the input, rounded here as `rounded` (eight_bits.py) does it; Q is the weight, rounded before. Both are widened
// to 16 bits, so that no sum of products can overflow: unlike the 8-bit instructions of AVX2, whose sums saturate.
// Writing one text reads every weight once per token, so reading takes the time: Q is stored in the order of use.

#include <cstdint>
#include <vector>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

constexpr int64_t COLUMNS = 16;      // numbers multiplied at once
constexpr int64_t OUTPUTS = 4;       // rows of W side by side in memory: the sums of all stay in registers
constexpr int64_t AHEAD = 1024;      // bytes of W requested before they are needed
constexpr int64_t WORTH_IT = 65536;  // products below which waking other threads takes longer than the work
constexpr float SMALLEST = 1e-30f;   // the smallest step: TINY of eight_bits.py

typedef int8_t Narrow __attribute__((vector_size(16)));
typedef int16_t Wide __attribute__((vector_size(32)));
typedef int32_t Sums __attribute__((vector_size(32)));
typedef int32_t Four __attribute__((vector_size(16)));

template <typename Vector, typename Number>
inline Vector load(const Number* from) {
    Vector vector;
    __builtin_memcpy(&vector, from, sizeof vector);
    return vector;
}

// The 16 products, added in pairs.
inline Sums products(Wide a, Wide b) {
#if defined(__AVX2__)
    return (Sums)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
    Sums pairs;
    for (int i = 0; i < 8; ++i) pairs[i] = int32_t(a[2 * i]) * b[2 * i] + int32_t(a[2 * i + 1]) * b[2 * i + 1];
    return pairs;
#endif
}

// The sum of each of four vectors.
inline Four totals(Sums a, Sums b, Sums c, Sums d) {
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

// Writes one position in whole numbers, zeros behind it, and returns its step; NaN if a number is not finite.
float round_position(const float* x, int64_t in, int64_t padded, int16_t* whole) {
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
    for (int64_t d = in; d < padded; ++d) whole[d] = 0;
    return step + nothing;
}

// Four numbers of the output at each of `POSITIONS` positions.
template <int POSITIONS>
void four_outputs(const int8_t* w, const int16_t* whole, int64_t padded, Four* found) {
    Sums sums[POSITIONS][OUTPUTS] = {};
    for (int64_t d = 0; d < padded; d += COLUMNS, w += OUTPUTS * COLUMNS) {
        __builtin_prefetch(w + AHEAD);
        Wide x[POSITIONS];
        for (int p = 0; p < POSITIONS; ++p) x[p] = load<Wide>(whole + p * padded + d);
        for (int n = 0; n < OUTPUTS; ++n) {
            const Wide weights = __builtin_convertvector(load<Narrow>(w + n * COLUMNS), Wide);
            for (int p = 0; p < POSITIONS; ++p) sums[p][n] += products(weights, x[p]);
        }
    }
    for (int p = 0; p < POSITIONS; ++p) found[p] = totals(sums[p][0], sums[p][1], sums[p][2], sums[p][3]);
}

}  // namespace

// x [positions, in], step and bias [out], y [positions, out]. W lies in groups of four rows, each group in pieces of 16
// columns, each piece row by row; rows and columns that fill up the last group and piece are zeros.
extern "C" void int8_map(const float* x, const int8_t* packed, const float* step, const float* bias, float* y,
                         int64_t positions, int64_t in, int64_t out, int threads) {
    const int64_t padded = (in + COLUMNS - 1) / COLUMNS * COLUMNS, groups = (out + OUTPUTS - 1) / OUTPUTS;
    std::vector<int16_t> whole(positions * padded);
    std::vector<float> step_x(positions);

#pragma omp parallel num_threads(threads) if (positions * padded * out > WORTH_IT)
    {
#pragma omp for schedule(static)
        for (int64_t m = 0; m < positions; ++m)
            step_x[m] = round_position(x + m * in, in, padded, whole.data() + m * padded);

#pragma omp for schedule(static)
        for (int64_t group = 0; group < groups; ++group) {
            const int8_t* w = packed + group * OUTPUTS * padded;
            for (int64_t m = 0; m < positions; m += 2) {
                Four found[2];
                const int64_t here = positions - m > 1 ? 2 : 1;
                if (here == 2)
                    four_outputs<2>(w, whole.data() + m * padded, padded, found);
                else
                    four_outputs<1>(w, whole.data() + m * padded, padded, found);
                for (int64_t p = 0; p < here; ++p)
                    for (int64_t i = 0, n = group * OUTPUTS; i < OUTPUTS && n < out; ++i, ++n)
                        y[(m + p) * out + n] = float(found[p][i]) * step[n] * step_x[m + p] + bias[n];
            }
        }
    }
}
