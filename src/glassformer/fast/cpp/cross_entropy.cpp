// Sums and gradients of the cross-entropy of many rows of logits, for training (train/native_cross_entropy.py).
//
// Each row is read twice, the second time from a near cache, and nothing of its size is made. Logits in bfloat16 are
// widened when they are read. Each row is one thread's, so that no number depends on how many threads there are.

#include <algorithm>

#include "bfloat16.h"

namespace glassformer {

// The fields of `CRows` in native_cross_entropy.py. N rows of V logits; `log_sum` and `mean` have a number for each row.
template <typename Number>
struct Rows {
    typedef Sums<Number> T;
    int64_t N, V;
    const Number* logits;
    const T* prior;  // what a row's mean weighs its logits by, or none
    T* log_sum;      // log sum exp
    T* mean;         // or none: nobody asks
    const int64_t* ids;
    double smoothing;
    const T* scale;
    Number* gradient;  // may be `logits`
};

template <typename Number>
void sum_row(const Rows<Number>& rows, int64_t row) {
    typedef Sums<Number> T;
    const Number* logits = rows.logits + row * rows.V;
    Lanes<T> high = all<T>(-INFINITY), sums = {}, means = {};
    each_vector<T>(rows.V, [&](int64_t j, int64_t n) {
        const Lanes<T> here = read(logits + j, n, T(-INFINITY));
        high = here > high ? here : high;
    });
    T largest = -INFINITY;
    for (int64_t i = 0; i < WIDTH<T>; ++i) largest = high[i] > largest ? high[i] : largest;
    if (largest == -INFINITY) largest = 0;
    each_vector<T>(rows.V, [&](int64_t j, int64_t n) {
        sums += exponential(read(logits + j, n, T(-INFINITY)) - largest);
    });
    rows.log_sum[row] = largest + std::log(total(sums));
    if (!rows.mean) return;
    each_vector<T>(rows.V, [&](int64_t j, int64_t n) {
        const Lanes<T> here = read(logits + j, n);
        means = rows.prior ? fused(here, read(rows.prior + j, n), means) : means + here;
    });
    rows.mean[row] = rows.prior ? total(means) : total(means) / T(rows.V);
}

// scale (softmax - (1 - e) onehot(id) - e u)
template <typename Number>
void slope_row(const Rows<Number>& rows, int64_t row) {
    typedef Sums<Number> T;
    const Number* logits = rows.logits + row * rows.V;
    Number* gradient = rows.gradient + row * rows.V;
    const T log_sum = rows.log_sum[row], e = T(rows.smoothing), scale = *rows.scale;
    const auto slope = [&](int64_t j, int64_t n) {
        const Lanes<T> share = rows.prior ? read(rows.prior + j, n) * e : all<T>(e / T(rows.V));
        return exponential(read(logits + j, n) - log_sum) - share;
    };
    const int64_t id = rows.ids[row];
    const T of_id = slope(id, 1)[0] + (e - T(1));  // before its logit is written over
    each_vector<T>(rows.V, [&](int64_t j, int64_t n) { write(gradient + j, slope(j, n) * scale, n); });
    write(gradient + id, all<T>(of_id * scale), 1);
}

template <typename Number>
bool each_row(const Rows<Number>& rows, bool slopes, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t row = 0; row < rows.N; ++row) slopes ? slope_row(rows, row) : sum_row(rows, row);
    return true;
}

}  // namespace glassformer

extern "C" bool cross_entropy_float(const void* rows, bool slopes, int threads) {
    return glassformer::each_row(*(const glassformer::Rows<float>*)rows, slopes, threads);
}

extern "C" bool cross_entropy_double(const void* rows, bool slopes, int threads) {
    return glassformer::each_row(*(const glassformer::Rows<double>*)rows, slopes, threads);
}

extern "C" bool cross_entropy_bfloat16(const void* rows, bool slopes, int threads) {
    return glassformer::each_row(*(const glassformer::Rows<uint16_t>*)rows, slopes, threads);
}
