// What a beam search needs of the logits of a step: the sum over the vocabulary, and the most likely tokens
// (decode/choose/native_likely.py). Each row is one thread's.

#include <algorithm>
#include <cmath>

#include "bfloat16.h"

namespace glassformer {

constexpr int64_t WORTH_IT = 65536;  // logits below which waking other threads takes longer than the work
constexpr int64_t TOGETHER = 8;  // vectors of logits that are passed over at once if none of them is large enough

// log sum exp; NaN if a number is NaN or +inf.
inline double log_sum(const float* logits, int64_t V) {
    Lanes<float> high = all<float>(-INFINITY), sums = {};
    each_vector<float>(V, [&](int64_t j, int64_t n) {
        const Lanes<float> here = read(logits + j, n, -INFINITY);
        high = (here > high) | (here != here) ? here : high;
    });
    float largest = -INFINITY;
    for (int64_t i = 0; i < WIDTH<float>; ++i) {
        if (high[i] != high[i]) return high[i];
        largest = high[i] > largest ? high[i] : largest;
    }
    if (largest == -INFINITY) return largest;
    each_vector<float>(V, [&](int64_t j, int64_t n) {
        sums += exponential(read(logits + j, n, -INFINITY) - largest);
    });
    return double(largest) + std::log(double(total(sums)));
}

// The k largest logits, largest first, and among equals the one with the lowest id.
struct Largest {
    int64_t k, *ids;
    double* values;
    int64_t held;

    float least() const { return held < k ? -INFINITY : float(values[k - 1]); }
    void see(int64_t id, float value) {
        if (held == k && !(value > least())) return;
        int64_t place = held < k ? held++ : k - 1;
        for (; place && values[place - 1] < value; --place) {
            values[place] = values[place - 1];
            ids[place] = ids[place - 1];
        }
        values[place] = value;
        ids[place] = id;
    }
    void of(const float* logits, int64_t V) {
        constexpr int64_t MANY = TOGETHER * WIDTH<float>;
        for (int64_t first = 0; first < V; first += MANY) {
            const int64_t end = std::min(V, first + MANY);
            if (held == k && end - first == MANY) {
                Lanes<float> high = load<Lanes<float>>(logits + first);
                for (int64_t j = 1; j < TOGETHER; ++j) {
                    const auto here = load<Lanes<float>>(logits + first + j * WIDTH<float>);
                    high = here > high ? here : high;
                }
                const auto above = (Numbers<int64_t, WIDTH<float> / 2>::Vector)(high > least());
                int64_t any = 0;
                for (int64_t i = 0; i < WIDTH<float> / 2; ++i) any |= above[i];
                if (!any) continue;
            }
            for (int64_t id = first; id < end; ++id) see(id, logits[id]);
        }
    }
};

}  // namespace glassformer

using namespace glassformer;

// Of each row of logits, which lie `apart`, the logarithm of the sum of e^z.
extern "C" bool log_sums(const float* logits, int64_t rows, int64_t apart, int64_t V, double* sums, int threads) {
#pragma omp parallel for num_threads(rows * V > WORTH_IT ? threads : 1)
    for (int64_t row = 0; row < rows; ++row) sums[row] = log_sum(logits + row * apart, V);
    return true;
}

// The k largest of each row, k <= V.
extern "C" bool most_likely(const float* logits, int64_t rows, int64_t apart, int64_t V, int64_t k, int64_t* ids,
                            double* values, int threads) {
#pragma omp parallel for num_threads(rows * V > WORTH_IT ? threads : 1)
    for (int64_t row = 0; row < rows; ++row)
        Largest{k, ids + row * k, values + row * k, 0}.of(logits + row * apart, V);
    return true;
}
