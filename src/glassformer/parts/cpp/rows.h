// What a step does to single rows: norms, rotation, attention of one query, activations (norm.py, rotary.py,
// attend/reference.py, activation.py).

#pragma once

#include "lanes.h"

namespace glassformer {

enum Normalises : int64_t { NOTHING = 0, LAYER = 1, RMS = 2 };  // `norm` of described.py
enum Activates : int64_t { IDENTITY, RELU, RELU_SQUARED, SIGMOID, SILU, GELU, GELU_TANH };  // ORDER of described.py

struct Norm {
    int64_t kind;
    double eps;
    const void *weight, *bias;
};

// cos and sin of each row's angles, `pairs` each; rows begin `row` numbers apart. No pairs: no rotation.
struct Rotation {
    int64_t pairs, interleaved, row;
    const void *cos, *sin;
};

// Where the vectors of one layer lie: how many numbers apart, by row, head and column.
struct Lie {
    int64_t row, head, column;
};

// What the attention of all blocks reads: `length` keys of each row, the numbers added to their scores, and whether a
// head may read none, both by row and head.
struct Keys {
    int64_t length;
    Lie keys, values;
    const void* added;
    int64_t added_row, added_head;
    const uint8_t* blind;
    int64_t blind_row, blind_head;
    const int64_t* at;          // the column of each row's new key and value; none if all are already there
    void *const *k, *const *v;  // of each block
};

template <typename T>
void normalise(const Norm& norm, const T* x, T* y, int64_t n) {
    if (norm.kind == NOTHING) {
        for (int64_t i = 0; i < n; ++i) y[i] = x[i];
        return;
    }
    const auto *weight = (const T*)norm.weight, *bias = (const T*)norm.bias;
    T mean = 0;
    if (norm.kind == LAYER) {
        Lanes<T> sums = {};
        int64_t i = 0;
        for (; i + WIDTH<T> <= n; i += WIDTH<T>) sums += load<Lanes<T>>(x + i);
        mean = total(sums);
        for (; i < n; ++i) mean += x[i];
        mean /= T(n);
    }
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] - mean;
    const T factor = T(1) / std::sqrt(dot(y, y, n) / T(n) + T(norm.eps));
    for (int64_t i = 0; i < n; ++i) y[i] = y[i] * factor * weight[i] + (bias ? bias[i] : T(0));
}

// The rotation of one head at one row: pairs (a, b) become (a cos - b sin, b cos + a sin).
template <typename T>
void rotate(const Rotation& rotation, int64_t row, T* x) {
    const T* cos = (const T*)rotation.cos + row * rotation.row;
    const T* sin = (const T*)rotation.sin + row * rotation.row;
    for (int64_t i = 0; i < rotation.pairs; ++i) {
        T& first = rotation.interleaved ? x[2 * i] : x[i];
        T& second = rotation.interleaved ? x[2 * i + 1] : x[i + rotation.pairs];
        const T a = first, b = second;
        first = a * cos[i] - b * sin[i];
        second = b * cos[i] + a * sin[i];
    }
}

// The sum of weights[s] times row s of v, for `N` vectors of its numbers.
template <typename T, int N>
inline void mix(const T* weights, const T* v, int64_t apart, int64_t length, T* mixed) {
    Lanes<T> sums[N] = {};
    for (int64_t s = 0; s < length; ++s)
        EACH for (int j = 0; j < N; ++j)
            sums[j] = fused(all<T>(weights[s]), load<Lanes<T>>(v + s * apart + j * WIDTH<T>), sums[j]);
    EACH for (int j = 0; j < N; ++j) store(mixed + j * WIDTH<T>, sums[j]);
}

// softmax(q k^T + added) v for one query; `weights` is room for a number per key and a vector more.
template <typename T>
void attend(const T* q, const T* k, const T* v, const T* added, const Keys& keys, int64_t width, T* weights, T* mixed) {
    const int64_t n = keys.length, apart_k = keys.keys.column, apart_v = keys.values.column;
    int64_t s = 0, i = 0;
    for (; s + 4 <= n; s += 4) dots<T, 4>(q, k + s * apart_k, apart_k, width, weights + s);
    for (; s < n; ++s) dots<T, 1>(q, k + s * apart_k, apart_k, width, weights + s);
    T largest = -INFINITY, sum = 0;
    for (s = 0; s < n; ++s) {
        if (added) weights[s] += added[s];
        largest = weights[s] > largest ? weights[s] : largest;
    }
    for (; s % WIDTH<T>; ++s) weights[s] = -INFINITY;
    for (s = 0; s < n; s += WIDTH<T>) {
        const Lanes<T> powers = exponential(load<Lanes<T>>(weights + s) - largest);
        sum += total(powers);
        store(weights + s, powers);
    }
    for (s = 0; s < n; ++s) weights[s] /= sum;
    for (; i + 4 * WIDTH<T> <= width; i += 4 * WIDTH<T>) mix<T, 4>(weights, v + i, apart_v, n, mixed + i);
    for (; i + WIDTH<T> <= width; i += WIDTH<T>) mix<T, 1>(weights, v + i, apart_v, n, mixed + i);
    for (; i < width; ++i) {
        mixed[i] = 0;
        for (s = 0; s < n; ++s) mixed[i] += weights[s] * v[s * apart_v + i];
    }
}

template <typename T>
Lanes<T> sigmoid(Lanes<T> x) {
    return T(1) / (T(1) + exponential(-x));
}

template <typename T>
Lanes<T> activated(int64_t activation, Lanes<T> x) {
    const Lanes<T> positive = x > T(0) ? x : Lanes<T>{};
    switch (activation) {
        case RELU: return x != x ? x : positive;
        case RELU_SQUARED: return x != x ? x : positive * positive;
        case SIGMOID: return sigmoid<T>(x);
        case SILU: return x * sigmoid<T>(x);
        case GELU:
            for (int64_t i = 0; i < WIDTH<T>; ++i) x[i] *= T(0.5) * (T(1) + std::erf(x[i] * T(M_SQRT1_2)));
            return x;
        case GELU_TANH:  // (1 + tanh(z)) / 2 = sigmoid(2 z)
            return x * sigmoid<T>(T(2 * M_SQRT2 * M_2_SQRTPI / 2) * (x + T(0.044715) * x * x * x));
        default: return x;
    }
}

}  // namespace glassformer
