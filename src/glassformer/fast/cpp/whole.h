// Linear maps with W in 8 bits. The input is rounded to 8 bits too, as `rounded` (eight_bits.py) does it.

#pragma once

#include "matrix_unit.h"

namespace glassformer {

constexpr int64_t STRETCH = 512;     // columns of rows of x that stay in the first cache
constexpr int64_t FAR_AHEAD = 6144;  // `AHEAD`, at the least, where several rows are multiplied, which takes longer
static_assert(GROUP * QUAD == PIECE && STRETCH % FILLED == 0 && FILLED % (2 * QUAD) == 0);

// Room for rows of x in whole numbers, and for what each has: its step, and what is added to its sums. Behind the rows
// is room for one of each thread, and for what the unit reads there.
struct Rounded {
    int64_t rows;
    Room<int8_t> whole;
    Room<float> step;
    Room<uint32_t> added;
    Rounded(int64_t rows, int64_t in, int64_t threads)
        : rows(rows),
          whole((rows ? rows + std::max(Unit::BEHIND, threads) : 0) * filled(in) * Way::BYTES_OF_NUMBER),
          step(rows + threads),
          added(rows + threads) {}
};

// Each group of W begins with what is added to its sums.
constexpr int64_t HEAD = sizeof(Sums);
static_assert(HEAD == GROUP * sizeof(int32_t));

constexpr int64_t bytes_of_group(int64_t in) { return HEAD + GROUP * filled(in); }

typedef Numbers<int32_t, GROUP>::Vector WithSigns;  // `Sums`, once they have all that belongs to them
typedef Numbers<float, GROUP>::Vector Outputs;

// Writes a row in whole numbers, as `rounded` (eight_bits.py) does it, zeros behind it, and returns its step; NaN if a
// number is not finite, since its whole numbers are not defined then, and the answer is no number anyway.
inline float round_row(const float* x, int64_t in, int8_t* whole) {
    const float most = largest(x, in);
    const bool finite = most == most;
    const float step = finite ? step_for(most) : most;
    for (int64_t d = 0; d < in; d += 8) {
        const Eight numbers = nearest(load_some<Eight>(x + d, in - d) / step);
        Way::put(whole + d * Way::BYTES_OF_NUMBER, finite ? __builtin_convertvector(numbers, Whole) : Whole{});
    }
    return step;
}

// Adds products of `columns` columns to the sums of `N` rows, whose numbers begin `apart` bytes apart. As many weights
// are requested as are read.
template <int N>
__attribute__((noinline)) void add_whole(const int8_t* w, const int8_t* x, int64_t apart, int64_t columns, Sums* all) {
    typedef Way::Part Part;
    constexpr int PARTS = sizeof(Sums) / sizeof(Part);
    constexpr int64_t FAR = N == 1 ? AHEAD : FAR_AHEAD;
    Part sums[N][PARTS];
    EACH for (int m = 0; m < N; ++m)
        EACH for (int n = 0; n < PARTS; ++n) sums[m][n] = load<Part>((const int8_t*)(all + m) + n * sizeof(Part));
    for (int64_t d = 0; d < columns; d += 2 * QUAD, w += 2 * PIECE)
        EACH for (int half = 0; half < 2; ++half) {
            request(w + half * PIECE + FAR);
            decltype(Way::weights(w)) weights[PARTS];
            EACH for (int n = 0; n < PARTS; ++n) weights[n] = Way::weights(w + half * PIECE + n * PIECE / PARTS);
            EACH for (int m = 0; m < N; ++m) {
                const auto numbers = Way::numbers(x + m * apart + (d + half * QUAD) * Way::BYTES_OF_NUMBER);
                EACH for (int n = 0; n < PARTS; ++n) {
                    sums[m][n] = Way::plus(sums[m][n], weights[n], numbers);
                    stays(sums[m][n]);  // or else the compiler adds in another order, and needs more registers
                }
            }
        }
    EACH for (int m = 0; m < N; ++m)
        EACH for (int n = 0; n < PARTS; ++n) store((int8_t*)(all + m) + n * sizeof(Part), sums[m][n]);
}

// Writes the heads of a weight.
inline void heads_of(int8_t* weight, int64_t groups, int64_t in) {
    for (int64_t group = 0; group < groups; ++group, weight += bytes_of_group(in)) {
        uint32_t sums[GROUP] = {};
        for (int64_t at = 0; at < GROUP * filled(in); at += QUAD)
            sums[at / QUAD % GROUP] += Way::of_output(weight + HEAD + at);
        __builtin_memcpy(weight, sums, HEAD);
    }
}

// y = (P Q^T) * step(x) * step(W) + b, where P is x in whole numbers and Q the weight.
template <typename After>
void map_whole(Member& member, const Map& map, const float* x, int64_t x_apart, float* y, int64_t y_apart, int64_t rows,
               const Rounded& room, After after) {
    const int64_t in = filled(map.in), bytes = bytes_of_group(map.in), apart = in * Way::BYTES_OF_NUMBER;
    const auto *step = (const float*)map.step, *bias = (const float*)map.bias;
    // A single row: rounding it takes less than waiting for it. Whoever is late must not write what others share by then.
    const int64_t own = rows == 1 ? room.rows + member.number : 0;
    int8_t* whole = room.whole.data + own * apart;
    float* step_of_x = room.step.data + own;
    uint32_t* added_to_x = room.added.data + own;
    const auto round = [&](int64_t m, int64_t end) {
        for (; m < end; ++m) {
            step_of_x[m] = round_row(x + m * x_apart, map.in, whole + m * apart);
            added_to_x[m] = Way::of_row(whole + m * apart, in);
        }
    };
    if (rows == 1)
        round(0, 1);
    else
        member.share(rows, round);
    const Unit unit(rows);
    each_block(member, map.out, GROUP, bytes, rows, unit.near(), [&](int64_t group, int64_t row, int64_t n) {
        const auto* w = (const int8_t*)map.weight + group * bytes;
        const int8_t* x_here = whole + row * apart;
        Sums sums[Unit::MOST];
        int64_t d = unit.begin(w, x_here, apart, in, n, sums);
        for (int64_t m = 0; d == 0 && m < n; ++m) sums[m] = load<Sums>((const uint32_t*)w) + added_to_x[row + m];
        for (; d < in; d += STRETCH)
            each_tile<Way::ROWS>(n, [&](int64_t m, auto some) {
                const int8_t* from = x_here + m * apart + d * Way::BYTES_OF_NUMBER;
                add_whole<some>(w + HEAD + d * GROUP, from, apart, std::min(STRETCH, in - d), sums + m);
            });
        const int64_t first = group * GROUP, left = map.out - first;
        const auto steps = load_some<Outputs>(step + first, left);
        const auto biases = load_some<Outputs>(bias ? bias + first : bias, left);
        const auto write = [&](auto all_of_them) {
            float* to = y + row * y_apart + first;
            for (int64_t m = 0; m < n; ++m, to += y_apart) {  // row by row, as rows may compete for a cache's sets
                const auto numbers = __builtin_convertvector((WithSigns)sums[m], Outputs);
                const auto found = numbers * steps * step_of_x[row + m] + biases;
                if constexpr (all_of_them)
                    store(to, found);
                else
                    store_some(to, found, left);
            }
        };
        left < GROUP ? write(std::false_type()) : write(std::true_type());
    }, after);
}

}  // namespace glassformer
