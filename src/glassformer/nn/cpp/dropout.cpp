// Dropout, added to another vector or not, and its gradient, for training (nn/trained/native_dropout.py).

#include <algorithm>

#include "bfloat16.h"

namespace glassformer {

constexpr int64_t PIECE = 1 << 14;  // numbers that are one thread's

// The fields of `CDropout` in native_dropout.py. y = onto + x * (word < zeros ? 0 : factor), number by number.
struct Dropping {
    int64_t n, zeros;
    double factor;
    const int16_t* words;
    const void *onto, *x;  // no `onto`: 0
    void* y;
};

template <typename To, typename From>
void drop(const Dropping& of, int64_t first, int64_t end) {
    typedef Sums<From> T;
    typedef std::conditional_t<sizeof(T) == 4, int32_t, int64_t> Int;
    typedef typename Numbers<Int, WIDTH<T>>::Vector Whole;
    typedef typename Numbers<int16_t, WIDTH<T>>::Vector Words;
    const Lanes<T> factor = all<T>(T(of.factor));
    const auto* x = (const From*)of.x;
    const auto* onto = (const To*)of.onto;
    each_vector<T>(end - first, [&](int64_t j, int64_t n) {
        const int64_t at = first + j;
        const auto word = __builtin_convertvector(load_some<Words>(of.words + at, n), Whole);
        const Lanes<T> share = read(x + at, n) * (word < Int(of.zeros) ? Lanes<T>{} : factor);
        write((To*)of.y + at, onto ? read(onto + at, n) + share : share, n);
    });
}

template <typename To, typename From>
bool drop_all(const Dropping& of, int threads) {
    const int64_t pieces = (of.n + PIECE - 1) / PIECE;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < pieces; ++i) drop<To, From>(of, i * PIECE, std::min(of.n, (i + 1) * PIECE));
    return true;
}

}  // namespace glassformer

extern "C" bool dropout_float_float(const void* of, int threads) {
    return glassformer::drop_all<float, float>(*(const glassformer::Dropping*)of, threads);
}

extern "C" bool dropout_double_double(const void* of, int threads) {
    return glassformer::drop_all<double, double>(*(const glassformer::Dropping*)of, threads);
}

extern "C" bool dropout_float_bfloat16(const void* of, int threads) {
    return glassformer::drop_all<float, uint16_t>(*(const glassformer::Dropping*)of, threads);
}

extern "C" bool dropout_bfloat16_float(const void* of, int threads) {
    return glassformer::drop_all<uint16_t, float>(*(const glassformer::Dropping*)of, threads);
}

extern "C" bool dropout_bfloat16_bfloat16(const void* of, int threads) {
    return glassformer::drop_all<uint16_t, uint16_t>(*(const glassformer::Dropping*)of, threads);
}
