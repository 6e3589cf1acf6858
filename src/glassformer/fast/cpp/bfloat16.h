// Numbers in bfloat16, the upper half of a float: widened when they are read, and rounded when they are written.

#pragma once

#include "lanes.h"

namespace glassformer {

// What numbers are added up in.
template <typename Number>
using Sums = std::conditional_t<std::is_same_v<Number, uint16_t>, float, Number>;

typedef Numbers<uint16_t, WIDTH<float>>::Vector Halves;
typedef Numbers<uint32_t, WIDTH<float>>::Vector Bits;

template <typename T>
inline Lanes<T> wide(const uint16_t* from) {
    static_assert(sizeof(T) == 4);
    return (Lanes<T>)(__builtin_convertvector(load<Halves>(from), Bits) << 16);
}

template <typename T>
inline T widened(T x) {
    return x;
}
inline float widened(uint16_t x) {
    const uint32_t bits = uint32_t(x) << 16;
    return load<float>(&bits);
}

// The nearest numbers, of two the even one; NaN stays NaN.
template <typename Number>
inline auto narrowed(Lanes<Sums<Number>> x) {
    if constexpr (std::is_same_v<Number, uint16_t>) {
        const Bits bits = (Bits)x, nearest = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        return __builtin_convertvector(x == x ? nearest : Bits{} + 0x7fc0, Halves);
    } else {
        return x;
    }
}

// Calls each(j, how many) for the vectors of n numbers: whole ones, whose size the compiler knows, then what is left.
template <typename T, typename Each>
inline void each_vector(int64_t n, Each each) {
    int64_t j = 0;
    for (; j + WIDTH<T> <= n; j += WIDTH<T>) each(j, std::integral_constant<int64_t, WIDTH<T>>{});
    if (j < n) each(j, n - j);
}

// Up to n numbers of a vector, as the others lie behind an end; `filling` stands for those.
template <typename Number>
inline Lanes<Sums<Number>> read(const Number* from, int64_t n, Sums<Number> filling = 0) {
    if (n >= WIDTH<Sums<Number>>) return wide<Sums<Number>>(from);
    Lanes<Sums<Number>> numbers = all<Sums<Number>>(filling);
    for (int64_t i = 0; i < n; ++i) numbers[i] = widened(from[i]);
    return numbers;
}
template <typename Number>
inline void write(Number* to, Lanes<Sums<Number>> numbers, int64_t n) {
    store_some(to, narrowed<Number>(numbers), n);
}

}  // namespace glassformer
