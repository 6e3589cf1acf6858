// A short convolution and its gradients, for training (nn/trained/native_convolution.py).
//
// Texts are cut into pieces, each of which is one thread's; each has its own sums for the gradient of the weights, so
// that no number depends on how many threads there are.

#include <algorithm>

#include "bfloat16.h"

namespace glassformer {

// The fields of `CShifts` in native_convolution.py. Vectors [B, T, D], row by row; `weight` [taps, D] is of the tokens
// 1, 2, ... places before.
template <typename Number>
struct Shifts {
    typedef Sums<Number> Weight;
    int64_t B, T, D, taps, piece;  // piece: tokens that are one thread's
    const uint8_t* real;                // [taps, B or 1, T], or none: all, but for those before the first column
    int64_t taps_apart, texts_apart;    // of `real`
    const Number* x;
    const Weight* weight;
    Number* y;
    const Number* of_y;
    Number* of_x;
    Weight* of_weight;  // [B * pieces of a text, taps, D]

    // Whether token t reads the one `back` places before it.
    bool reads(int64_t b, int64_t t, int64_t back) const {
        return t >= back && (!real || real[(back - 1) * taps_apart + b * texts_apart + t]);
    }
};

template <typename Number>
void forward(const Shifts<Number>& of, int64_t b, int64_t first, int64_t end) {
    typedef Sums<Number> T;
    for (int64_t t = first; t < end; ++t) {
        const int64_t at = (b * of.T + t) * of.D;
        each_vector<T>(of.D, [&](int64_t j, int64_t n) {
            Lanes<T> sum = read(of.x + at + j, n);
            for (int64_t back = 1; back <= of.taps; ++back)
                if (of.reads(b, t, back))
                    sum += read(of.weight + (back - 1) * of.D + j, n) * read(of.x + at - back * of.D + j, n);
            write(of.y + at + j, sum, n);
        });
    }
}

template <typename Number>
void backward(const Shifts<Number>& of, int64_t b, int64_t first, int64_t end, Sums<Number>* of_weight) {
    typedef Sums<Number> T;
    for (int64_t t = first; t < end; ++t) {
        const int64_t at = (b * of.T + t) * of.D;
        each_vector<T>(of.D, [&](int64_t j, int64_t n) {
            Lanes<T> sum = read(of.of_y + at + j, n);
            for (int64_t back = 1; back <= of.taps; ++back)
                if (t + back < of.T && of.reads(b, t + back, back))
                    sum += read(of.weight + (back - 1) * of.D + j, n) * read(of.of_y + at + back * of.D + j, n);
            write(of.of_x + at + j, sum, n);
        });
    }
    for (int64_t back = 1; back <= of.taps; ++back)
        each_vector<T>(of.D, [&](int64_t j, int64_t n) {
            Lanes<T> sum = {};
            for (int64_t t = first; t < end; ++t) {
                const int64_t at = (b * of.T + t) * of.D + j;
                if (of.reads(b, t, back)) sum += read(of.of_y + at, n) * read(of.x + at - back * of.D, n);
            }
            write(of_weight + (back - 1) * of.D + j, sum, n);
        });
}

template <typename Number>
bool convolve(const Shifts<Number>& of, bool back, int threads) {
    const int64_t pieces = (of.T + of.piece - 1) / of.piece;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < of.B * pieces; ++i) {
        const int64_t b = i / pieces, first = i % pieces * of.piece, end = std::min(of.T, first + of.piece);
        back ? backward(of, b, first, end, of.of_weight + i * of.taps * of.D) : forward(of, b, first, end);
    }
    return true;
}

}  // namespace glassformer

extern "C" bool convolution_float(const void* of, bool back, int threads) {
    return glassformer::convolve(*(const glassformer::Shifts<float>*)of, back, threads);
}

extern "C" bool convolution_double(const void* of, bool back, int threads) {
    return glassformer::convolve(*(const glassformer::Shifts<double>*)of, back, threads);
}

extern "C" bool convolution_bfloat16(const void* of, bool back, int threads) {
    return glassformer::convolve(*(const glassformer::Shifts<uint16_t>*)of, back, threads);
}
