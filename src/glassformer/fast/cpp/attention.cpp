// Attention of many queries and its gradients, for training (nn/trained/native_attention.py).
//
// Scores are computed for a block of queries at a time and never kept: the way back computes them again from the same
// queries and keys (Dao et al. 2022, FlashAttention, section 3.1). Each text and group of heads is one thread's, so that
// no number depends on how many threads there are.

#include <new>
#include <vector>

#include "bfloat16.h"
#include "products.h"
#include "rows.h"

namespace glassformer {

constexpr int64_t QUERIES = 24;  // of a block: a multiple of TALL
constexpr int64_t SOON = 8;      // tokens by which reading is ahead
constexpr int64_t SQUARE = 16;   // sides of what is transposed at a time, so that lines of a cache are used whole

// Vectors by text, head and token: where the first lies, and how many numbers apart they lie.
template <typename Number>
struct Places {
    Number* first;
    int64_t text, head, token;
    Number* operator()(int64_t b, int64_t h, int64_t t) const { return first + b * text + h * head + t * token; }

    // Requests a vector that will be read soon: heads lie between the vectors of one, so no processor foresees it.
    void soon(int64_t b, int64_t h, int64_t t, int64_t K) const {
        if (first)
            for (int64_t i = 0; i < K; i += 64 / int64_t(sizeof(Number))) __builtin_prefetch((*this)(b, h, t) + i);
    }
};

// What queries or keys become before they are multiplied: normalised, then rotated. The gradient of the norm's weight
// has a row for each text and group.
template <typename T>
struct Turn {
    Norm norm;
    Rotation rotation;
    int64_t texts_apart;  // rows of `rotation` between two texts; 0 where all have the same positions
    T* of_weight;
};

// The fields of `CCall` in native_attention.py. Vectors may be in bfloat16; all is computed in float then.
template <typename Number>
struct Call {
    typedef Sums<Number> T;
    int64_t B, H, G, T_, S, K, causal;  // causal: query t reads S - T + t + 1 keys
    double scale;
    Turn<T> of_queries, of_keys;
    Places<const Number> q, k, v;
    Places<const T> added;  // to the scores of a query; or no `first`
    Places<Number> out;
    T* logs;  // of the sum of each query's powers, by text, head and token
    Places<const Number> of_out;
    Places<Number> of_q, of_k, of_v;
};

template <typename Number, typename T>
void widen(const Number* from, T* to, int64_t n) {
    each_vector<T>(n, [&](int64_t i, int64_t some) { store_some(to + i, read(from + i, some), some); });
}
template <typename Number, typename T>
void narrow(const T* from, Number* to, int64_t n) {
    each_vector<T>(n, [&](int64_t i, int64_t some) { write(to + i, read(from + i, some), some); });
}

template <typename Number, typename T>
void turn(const Turn<T>& by, int64_t text, int64_t token, const Number* x, T* y, int64_t K) {
    widen(x, y, K);
    if (by.norm.kind != NOTHING) normalise(by.norm, y, y, K);
    rotate(by.rotation, text * by.texts_apart + token, y);
}

// Turns the gradient g of what `turn` made of x into that of x, and adds that of the norm's weight (RMSNorm, norm.py).
template <typename T>
void turn_back(const Turn<T>& by, int64_t text, int64_t token, const T* x, T* g, T* of_weight, int64_t K) {
    rotate(by.rotation, text * by.texts_apart + token, g, true);
    if (by.norm.kind == NOTHING) return;
    const auto* weight = (const T*)by.norm.weight;
    const T r = inverse_root(x, T(0), by.norm.eps, K);
    each_part<T>(K, [&](int64_t i, auto like) {
        typedef decltype(like) Part;
        const Part here = load<Part>(g + i);
        store(of_weight + i, load<Part>(of_weight + i) + here * load<Part>(x + i) * r);
        store(g + i, here * load<Part>(weight + i));
    });
    const T mean = dot(g, x, K) * r * r / T(K);
    each_part<T>(K, [&](int64_t i, auto like) {
        typedef decltype(like) Part;
        store(g + i, (load<Part>(g + i) - load<Part>(x + i) * mean) * r);
    });
}

// What a thread needs for one text and group of heads at a time. Keys and values also lie column by column.
template <typename Number>
class Group {
    typedef Sums<Number> T;
    const Call<Number>& call;
    const int64_t S, K;
    const bool back;
    Grid<T> k, v, keys, values, of_k, of_v, q, weights, of_out, of_scores, found, given;

   public:
    Group(const Call<Number>& call, bool back)
        : call(call),
          S(call.S),
          K(call.K),
          back(back),
          k(S, K),
          v(S, K),
          keys(K, S),
          values(back ? K : 0, S),
          of_k(back ? S : 0, K),
          of_v(back ? S : 0, K),
          q(QUERIES, K),
          weights(QUERIES, S),
          of_out(back ? QUERIES : 0, K),
          of_scores(back ? QUERIES : 0, S),
          found(QUERIES, K),
          given(1, K) {}

    void forward(int64_t b, int64_t g) {
        each_block(b, g, [&](int64_t h, int64_t first, int64_t n, int64_t most) {
            T factor[QUERIES];
            for (int64_t i = 0; i < n; ++i) {
                T sum;
                logs(b, h)[first + i] = powers(weights[i], reads(first + i), most, sum);
                factor[i] = sum > 0 || sum != sum ? T(1) / sum : T(0);
            }
            near_product(as_it_is(weights), v, found, most, n, K);
            for (int64_t i = 0; i < n; ++i) {
                for (int64_t j = 0; j < K; ++j) found[i][j] *= factor[i];
                narrow(found[i], call.out(b, h, first + i), K);
            }
        });
    }

    void backward(int64_t b, int64_t g) {
        T *of_q_weight = of_weight(call.of_queries, b, g), *of_k_weight = of_weight(call.of_keys, b, g);
        std::fill(of_k[0], of_k[S - 1] + K, T(0));
        std::fill(of_v[0], of_v[S - 1] + K, T(0));
        each_block(b, g, [&](int64_t h, int64_t first, int64_t n, int64_t most) {
            for (int64_t i = 0; i < n; ++i) {
                call.of_out.soon(b, h, first + i + SOON, K);
                widen(call.of_out(b, h, first + i), of_out[i], K);
            }
            near_product(as_it_is(of_out), values, of_scores, K, n, most);
            for (int64_t i = 0; i < n; ++i) {
                const T log = logs(b, h)[first + i];
                T *weight = weights[i], *here = of_scores[i];
                const int64_t end = reads(first + i);
                for (int64_t s = end; s % WIDTH<T>; ++s) weight[s] = -INFINITY, here[s] = 0;
                Lanes<T> sums = {};
                for (int64_t s = 0; s < end; s += WIDTH<T>) {
                    const Lanes<T> each = exponential(load<Lanes<T>>(weight + s) - log);
                    store(weight + s, each);
                    sums = fused(each, load<Lanes<T>>(here + s), sums);
                }
                const T mean = total(sums);
                for (int64_t s = 0; s < end; s += WIDTH<T>)
                    store(here + s, load<Lanes<T>>(weight + s) * (load<Lanes<T>>(here + s) - mean));
                for (int64_t s = end; s < most; ++s) weight[s] = here[s] = 0;
            }
            near_product(transposed(weights), of_out, of_v, n, most, K, true);
            near_product(transposed(of_scores), q, of_k, n, most, K, true);  // q has the scale
            near_product(as_it_is(of_scores), k, found, most, n, K);
            for (int64_t i = 0; i < n; ++i) {
                for (int64_t j = 0; j < K; ++j) found[i][j] *= T(call.scale);
                turned_back(call.of_queries, b, first + i, call.q(b, h, first + i), found[i], of_q_weight);
                narrow(found[i], call.of_q(b, h, first + i), K);
            }
        });
        for (int64_t s = 0; s < S; ++s) {
            turned_back(call.of_keys, b, s, call.k(b, g, s), of_k[s], of_k_weight);
            narrow(of_k[s], call.of_k(b, g, s), K);
            narrow(of_v[s], call.of_v(b, g, s), K);
        }
    }

   private:
    T* of_weight(const Turn<T>& of, int64_t b, int64_t g) const {
        return of.of_weight ? of.of_weight + (b * call.G + g) * K : nullptr;
    }
    T* logs(int64_t b, int64_t h) const { return call.logs + (b * call.H + h) * call.T_; }
    void turned_back(const Turn<T>& by, int64_t text, int64_t token, const Number* x, T* g, T* of_weight) {
        if (by.norm.kind != NOTHING) widen(x, given[0], K);
        turn_back(by, text, token, given[0], g, of_weight, K);
    }

    // How many keys a query reads: the first ones.
    int64_t reads(int64_t t) const {
        return call.causal ? std::clamp(S - call.T_ + t + 1, int64_t(0), S) : S;
    }

    // Calls work(head, first query, queries, keys that the last of them reads) once their scores are in `weights`.
    template <typename Work>
    void each_block(int64_t b, int64_t g, Work work) {
        for (int64_t s = 0; s < S; ++s) {
            call.k.soon(b, g, s + SOON, K), call.v.soon(b, g, s + SOON, K);
            turn(call.of_keys, b, s, call.k(b, g, s), k[s], K);
            widen(call.v(b, g, s), v[s], K);
        }
        to_columns(k, keys);
        if (back) to_columns(v, values);
        for (int64_t h = g * (call.H / call.G); h < (g + 1) * (call.H / call.G); ++h)
            for (int64_t first = 0; first < call.T_; first += QUERIES) {
                const int64_t n = std::min(QUERIES, call.T_ - first), most = reads(first + n - 1);
                for (int64_t i = 0; i < n; ++i) {
                    call.q.soon(b, h, first + i + SOON, K);
                    turn(call.of_queries, b, first + i, call.q(b, h, first + i), q[i], K);
                    for (int64_t j = 0; j < K; ++j) q[i][j] *= T(call.scale);
                }
                near_product(as_it_is(q), keys, weights, K, n, most);
                if (call.added.first)
                    for (int64_t i = 0; i < n; ++i) {
                        const T* more = call.added(b, h, first + i);
                        for (int64_t s = 0; s < most; ++s) weights[i][s] += more[s];
                    }
                work(h, first, n, most);
            }
    }

    void to_columns(const Grid<T>& from, const Grid<T>& to) {
        for (int64_t s = 0; s < S; s += SQUARE)
            for (int64_t i = 0; i < K; i += SQUARE)
                for (int64_t row = s; row < std::min(S, s + SQUARE); ++row)
                    for (int64_t j = i; j < std::min(K, i + SQUARE); ++j) to[j][row] = from[row][j];
    }

    // Turns the first n scores into powers e^(score - largest), all others up to `most` into 0; returns the logarithm of
    // the powers' `sum`, with the largest. A query that reads nothing has the sum 0 and an infinite logarithm.
    T powers(T* scores, int64_t n, int64_t most, T& sum) const {
        for (int64_t s = n; s % WIDTH<T>; ++s) scores[s] = -INFINITY;
        Lanes<T> high = all<T>(-INFINITY), sums = {};
        for (int64_t s = 0; s < n; s += WIDTH<T>) {
            const Lanes<T> here = load<Lanes<T>>(scores + s);
            high = here > high ? here : high;
        }
        T largest = -INFINITY;
        for (int64_t i = 0; i < WIDTH<T>; ++i) largest = high[i] > largest ? high[i] : largest;
        for (int64_t s = 0; s < n; s += WIDTH<T>) {
            const Lanes<T> here = exponential(load<Lanes<T>>(scores + s) - (largest == -INFINITY ? T(0) : largest));
            sums += here;
            store(scores + s, here);
        }
        for (int64_t s = n; s < most; ++s) scores[s] = 0;
        sum = total(sums);
        return sum == 0 ? T(INFINITY) : largest + std::log(sum);
    }
};

template <typename Number>
bool attend(const Call<Number>& call, bool back, int threads) {
    try {
        const int64_t units = call.B * call.G, some = std::min<int64_t>(units, threads);
        std::vector<std::unique_ptr<Group<Number>>> groups;
        for (int64_t i = 0; i < some; ++i) groups.emplace_back(new Group<Number>(call, back));
#pragma omp parallel for schedule(dynamic) num_threads(groups.size())
        for (int64_t i = 0; i < units; ++i) {
            Group<Number>& group = *groups[omp_get_thread_num()];
            back ? group.backward(i / call.G, i % call.G) : group.forward(i / call.G, i % call.G);
        }
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

}  // namespace glassformer

extern "C" bool attention_float(const void* call, bool back, int threads) {
    return glassformer::attend(*(const glassformer::Call<float>*)call, back, threads);
}

extern "C" bool attention_double(const void* call, bool back, int threads) {
    return glassformer::attend(*(const glassformer::Call<double>*)call, back, threads);
}

extern "C" bool attention_bfloat16(const void* call, bool back, int threads) {
    return glassformer::attend(*(const glassformer::Call<uint16_t>*)call, back, threads);
}
