// What a step does to single rows: norms, rotation, activations (norm.py, rotary.py, activation.py).

#pragma once

#include "lanes.h"

namespace glassformer {

enum Normalises : int64_t { NOTHING = 0, LAYER = 1, RMS = 2 };  // `norm` of blocks.py
enum Activates : int64_t { IDENTITY, RELU, RELU_SQUARED, SIGMOID, SILU, GELU, GELU_TANH };  // ORDER of blocks.py

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

// Calls each(i, Lanes or T) for all numbers: whole vectors, then what is left of them.
template <typename T, typename Each>
inline void each_part(int64_t n, Each each) {
    int64_t i = 0;
    for (; i + WIDTH<T> <= n; i += WIDTH<T>) each(i, Lanes<T>{});
    for (; i < n; ++i) each(i, T(0));
}

// 1 / sqrt(mean of (x - mean)^2 + eps)
template <typename T>
T inverse_root(const T* x, T mean, double eps, int64_t n) {
    Lanes<T> sums = {};
    T left = 0;
    each_part<T>(n, [&](int64_t i, auto like) {
        const auto y = load<decltype(like)>(x + i) - mean;
        if constexpr (sizeof(like) == sizeof(T))
            left += y * y;
        else
            sums = fused(y, y, sums);
    });
    return T(1) / std::sqrt((total(sums) + left) / T(n) + T(eps));
}

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
    const T factor = inverse_root(x, mean, norm.eps, n);
    each_part<T>(n, [&](int64_t i, auto like) {
        typedef decltype(like) Part;
        const Part part = (load<Part>(x + i) - mean) * factor * load<Part>(weight + i);
        store(y + i, bias ? part + load<Part>(bias + i) : part);
    });
}

// The rotation of one head at one row: pairs (a, b) become (a cos - b sin, b cos + a sin). Back: with -sin, as the
// gradient of a rotation is turned.
template <typename T>
void rotate(const Rotation& rotation, int64_t row, T* x, bool back = false) {
    const T* cos = (const T*)rotation.cos + row * rotation.row;
    const T* sin = (const T*)rotation.sin + row * rotation.row;
    const auto turned = [&](auto& first, auto& second, auto c, auto s) {
        const auto a = first, b = second;
        if (back) s = -s;
        first = a * c - b * s;
        second = b * c + a * s;
    };
    if (rotation.interleaved) {
        for (int64_t i = 0; i < rotation.pairs; ++i) turned(x[2 * i], x[2 * i + 1], cos[i], sin[i]);
        return;
    }
    each_part<T>(rotation.pairs, [&](int64_t i, auto like) {
        typedef decltype(like) Part;
        Part first = load<Part>(x + i), second = load<Part>(x + rotation.pairs + i);
        turned(first, second, load<Part>(cos + i), load<Part>(sin + i));
        store(x + i, first);
        store(x + rotation.pairs + i, second);
    });
}

template <typename T>
Lanes<T> sigmoid(Lanes<T> x) {
    return T(1) / (T(1) + exponential(-x));
}

// The share of the normal distribution below x, erfc(-x / sqrt(2)) / 2. For z >= 0, erfc(z) is e^(-z^2) t q(t) with
// t = 1 / (1 + z / 2); q was fitted for z up to 9.5, to 4e-8. Beyond that, e^(-z^2) is 0 in float32.
inline Lanes<float> normal_share(Lanes<float> x) {
    const Lanes<float> z = (x < 0.0f ? -x : x) * float(M_SQRT1_2), t = 1.0f / (1.0f + 0.5f * z);
    Lanes<float> q = all(-0.058014519f);
    for (float c : {0.27970702f, -0.47772373f, 0.26794655f, -0.020165044f, 0.20017207f, 0.24368484f, 0.28230258f,
                    0.28209019f})
        q = fused(q, t, all(c));
    const Lanes<float> above = 0.5f * t * q * exponential(-0.5f * x * x);
    return x < 0.0f ? above : 1.0f - above;
}
inline Lanes<double> normal_share(Lanes<double> x) {
    for (int64_t i = 0; i < WIDTH<double>; ++i) x[i] = 0.5 * (1 + std::erf(x[i] * M_SQRT1_2));
    return x;
}

template <typename T>
Lanes<T> activated(int64_t activation, Lanes<T> x) {
    const Lanes<T> positive = x > T(0) ? x : Lanes<T>{};
    switch (activation) {
        case RELU: return x != x ? x : positive;
        case RELU_SQUARED: return x != x ? x : positive * positive;
        case SIGMOID: return sigmoid<T>(x);
        case SILU: return x * sigmoid<T>(x);
        case GELU: return x * normal_share(x);
        case GELU_TANH:  // (1 + tanh(z)) / 2 = sigmoid(2 z)
            return x * sigmoid<T>(T(2 * M_SQRT2 * M_2_SQRTPI / 2) * (x + T(0.044715) * x * x * x));
        default: return x;
    }
}

}  // namespace glassformer
