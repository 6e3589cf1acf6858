// The keys and values of a cache, and the attention of one query to them (nn/attention.py).
//
// They lie as the numbers of x, or in 8 bits, where each vector has a step that its numbers are multiples of
// (rounded.py).

#pragma once

#include <algorithm>

#include "lanes.h"

namespace glassformer {

// Where something lies that there is by text, head and column or token: how many numbers apart.
struct Lie {
    int64_t text, head, column;
    int64_t at(int64_t t, int64_t h, int64_t c = 0) const { return t * text + h * head + c * column; }
};

// Where the columns of a text lie: the first `known` of them in texts that it goes on from, as rows of a beam do.
struct Indirection {
    int64_t text;
    const int64_t* from;
    int64_t known;
    int64_t at(int64_t column) const { return column < known ? from[column] : text; }
};

// What the attention of all blocks reads: for the last token of each text `length` keys, and if `causal` for each token
// before it one less than for the next; whether the tokens have keys here; the numbers added to their scores, and
// whether a head may read none.
struct Keys {
    int64_t length, causal, fresh;
    Lie keys, values, key_steps, value_steps;
    const void* added;
    Lie added_at;  // by text, head and token
    const uint8_t* blind;
    Lie blind_at;
    const int64_t* at;          // the column of each token's new key and value; none if they are the last, in order
    void *const *k, *const *v;  // of each block; none if there are no others than those of the tokens themselves
    float *const *k_step, *const *v_step;  // none where numbers are those of x
    const void* memory;                    // `length` vectors of each text whose keys are still to be made; else none
    const int64_t* indirection;  // of each text, for its first columns, the text where each lies; others lie in their own
    int64_t known;           // how many
    Indirection of(int64_t text) const { return {text, indirection ? indirection + text * known : nullptr, known}; }
    // The column of a token's new key and value, of a row among all and a place in its text.
    int64_t column(int64_t row, int64_t token, int64_t tokens) const { return at ? at[row] : length - tokens + token; }
};

// What convolutions read (convolution.py): for each of all `rows` the columns of the token before it, then those of the
// token before that, and so on, -1 where there is none. In a cache, two layers of each block, and the column of each new
// token, or if they are in order that of the `first` of a text; else a token's column is its place in its text.
struct Nearby {
    int64_t rows, first;
    const int64_t *columns, *at;
    void* const* layers;
    const int64_t* indirection;  // as in `Keys`
    int64_t known;
    Lie lie;
    int64_t column(int64_t row, int64_t token) const { return at ? at[row] : first + token; }
    Indirection of(int64_t text) const { return {text, indirection ? indirection + text * known : nullptr, known}; }
};

// The vectors of one head in the columns of a text, and where they have steps, these.
template <typename Number>
struct Vectors {
    Number* from;  // of all texts
    Lie lie;
    float* step;
    Lie of_steps;
    Indirection indirection;
    Vectors(void* layer, float* steps, const Lie& lie, const Lie& of_steps, const Indirection& indirection, int64_t head)
        : from((Number*)layer + lie.at(0, head)),
          lie(lie),
          step(steps ? steps + of_steps.at(0, head) : nullptr),
          of_steps(of_steps),
          indirection(indirection) {}
    // `FOLLOWS`: whether there is an indirection. Without one, the compiler knows that columns lie equally far apart.
    template <bool FOLLOWS = true>
    int64_t row(int64_t column) const {
        return FOLLOWS ? indirection.at(column) : indirection.text;
    }
    template <bool FOLLOWS = true>
    Number* at(int64_t column) const {
        return from + lie.at(row<FOLLOWS>(column), 0, column);
    }
    template <bool FOLLOWS = true>
    float& step_at(int64_t column) const {
        return step[of_steps.at(row<FOLLOWS>(column), 0, column)];
    }
};

template <typename Number>
struct Held {
    Vectors<Number> k, v;
};

// Writes a vector into a column; in 8 bits as `rounded` (eight_bits.py) does it.
template <typename T>
void put(const Vectors<T>& to, int64_t column, const T* x, int64_t width) {
    std::copy(x, x + width, to.at(column));
}
template <typename T>
void put(const Vectors<int8_t>& to, int64_t column, const T* x, int64_t width) {
    typedef typename Numbers<int8_t, WIDTH<T>>::Vector Narrow;
    const T most = largest(x, width);
    const bool finite = most == most;
    const float step = finite ? step_for(float(most)) : NAN;  // no number is read as a valid one then
    int8_t* here = to.at(column);
    int64_t i = 0;
    to.step_at(column) = step;
    for (; finite && i + WIDTH<T> <= width; i += WIDTH<T>)
        store(here + i, __builtin_convertvector(nearest(load<Lanes<T>>(x + i) / T(step)), Narrow));
    for (; i < width; ++i) here[i] = finite ? int8_t(std::nearbyint(x[i] / T(step))) : int8_t(0);
}

// The sum of weights[s] times vector s of v, for `N` parts of its numbers, from the i-th on.
template <bool FOLLOWS, typename T, int N, typename Number>
inline void mix(const T* weights, const Vectors<Number>& v, int64_t i, int64_t length, T* mixed) {
    Lanes<T> sums[N] = {};
    for (int64_t s = 0; s < length; ++s) {
        const Number* here = v.template at<FOLLOWS>(s) + i;
        EACH for (int j = 0; j < N; ++j) sums[j] = fused(all<T>(weights[s]), wide<T>(here + j * WIDTH<T>), sums[j]);
    }
    EACH for (int j = 0; j < N; ++j) store(mixed + i + j * WIDTH<T>, sums[j]);
}

// softmax(q k^T + added) v for one query and n keys; `weights` is room for a number per key and a vector more.
template <bool FOLLOWS, typename T, typename Number>
void attend_by(const T* q, const Vectors<Number>& k, const Vectors<Number>& v, const T* added, int64_t n,
               int64_t width, T* weights, T* mixed) {
    int64_t s = 0, i = 0;
    const auto key = [&](int after) { return k.template at<FOLLOWS>(s + after); };
    for (; s + 4 <= n; s += 4) dots<T, 4>(q, key, width, weights + s);
    for (; s < n; ++s) dots<T, 1>(q, key, width, weights + s);
    if (k.step)
        for (s = 0; s < n; ++s) weights[s] *= T(k.template step_at<FOLLOWS>(s));
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
    if (v.step)
        for (s = 0; s < n; ++s) weights[s] *= T(v.template step_at<FOLLOWS>(s));
    for (; i + 4 * WIDTH<T> <= width; i += 4 * WIDTH<T>) mix<FOLLOWS, T, 4>(weights, v, i, n, mixed);
    for (; i + WIDTH<T> <= width; i += WIDTH<T>) mix<FOLLOWS, T, 1>(weights, v, i, n, mixed);
    for (; i < width; ++i) {
        mixed[i] = 0;
        for (s = 0; s < n; ++s) mixed[i] += weights[s] * T(v.template at<FOLLOWS>(s)[i]);
    }
}

// The same, whether there is an indirection or not.
template <typename T, typename Number>
void attend(const T* q, const Vectors<Number>& k, const Vectors<Number>& v, const T* added, int64_t n, int64_t width,
            T* weights, T* mixed) {
    if (k.indirection.from)
        attend_by<true>(q, k, v, added, n, width, weights, mixed);
    else
        attend_by<false>(q, k, v, added, n, width, weights, mixed);
}

}  // namespace glassformer
