// What linear maps of all numbers share: how W lies in memory, and in which order its parts are multiplied.
//
// Writing one text reads every weight once per token, so reading takes the time, and the next weights are always
// requested before they are needed. Each row of x is summed in an order of its own: what it gets does not depend on the
// rows beside it, nor on the threads.

#pragma once

#include <type_traits>

#include "lanes.h"
#include "team.h"

namespace glassformer {

enum Kind : int64_t { AS_X = 0, BFLOAT16 = 1, INT8 = 2 };  // NUMBERS of native.py

// W [out, in] lies row by row if it has the numbers of x. Else it lies in groups of sixteen rows, each group in pieces
// of 64 bytes, four of each row, filled up with zeros: in the order of use. In 8 bits each group begins with one piece
// more (whole.h), and every row has its step. A bias may be missing.
struct Map {
    int64_t kind, in, out;
    const void *weight, *step, *bias;
};

constexpr int64_t GROUP = 16;    // rows of W that lie together
constexpr int64_t PIECE = 64;    // bytes of a group that lie together
constexpr int64_t FILLED = 8;    // a group has a multiple of so many columns
constexpr int64_t SHARED = 16;   // rows of x that threads share as one, where they share rows
constexpr int64_t CLOSE = 131072;  // bytes that stay in the second cache of a processor

constexpr int64_t filled(int64_t in) { return (in + FILLED - 1) / FILLED * FILLED; }

// How far apart rows of n numbers lie: by an odd number of lines of 64 bytes, as what lies in a column would compete for
// a cache's sets otherwise.
template <typename T>
constexpr int64_t spread(int64_t n) {
    constexpr int64_t of_line = 64 / sizeof(T);
    return ((n + of_line - 1) / of_line | 1) * of_line;
}

// Calls tile with `n` <= MOST as a constant.
template <int MOST, typename Tile>
inline void with_constant(int64_t n, Tile tile) {
    if constexpr (MOST > 1)
        if (n < MOST) return with_constant<MOST - 1>(n, tile);
    tile(std::integral_constant<int, MOST>());
}

// Where weights are requested to, and how many bytes before their use. As they are read once per step, they need not
// stay in the larger caches, and AMD's Zen 2 reads them faster so. Intel's Xeons with AMX have few places for what
// passes the second cache by, and would write a text at half the speed. Others have not been measured.
#if defined(__x86_64__) && !defined(__znver1__) && !defined(__znver2__) && !defined(__znver3__) && \
    !defined(__znver4__) && !defined(__znver5__)
constexpr int STAYS_IN = 2;
constexpr int64_t AHEAD = 6144;
#else
constexpr int STAYS_IN = 0;
constexpr int64_t AHEAD = 1024;
#endif
inline void request(const void* weights) { __builtin_prefetch(weights, 0, STAYS_IN); }

// What is done with outputs [first, last) of the rows from `row` to `end`, by the member that has just computed them.
struct Nothing {
    void operator()(int64_t, int64_t, int64_t, int64_t) const {}
};

// Calls block(group, row, n) for all groups of `width` outputs and up to `near` rows each, and `after` for what it made.
// In its order, rows of x stay near while close rows of W are multiplied by them. Members share what there is more of,
// outputs or rows, so that each has to read less of the other.
template <typename Block, typename After>
inline void each_block(Member& member, int64_t out, int64_t width, int64_t bytes_of_group, int64_t rows, int64_t near,
                       Block block, After after) {
    const int64_t close = std::max<int64_t>(1, CLOSE / bytes_of_group), groups = (out + width - 1) / width;
    const auto part = [&](int64_t begin, int64_t end, int64_t first, int64_t last) {
        for (int64_t from = begin; from < end; from += close)
            for (int64_t above = first; above < last; above += near)
                for (int64_t group = from; group < std::min(end, from + close); ++group)
                    block(group, above, std::min(near, last - above));
    };
    if (rows > out)
        member.share((rows + SHARED - 1) / SHARED, [&](int64_t begin, int64_t end) {
            part(0, groups, begin * SHARED, std::min(rows, end * SHARED));
            after(begin * SHARED, std::min(rows, end * SHARED), int64_t(0), out);
        });
    else
        member.share(groups, [&](int64_t begin, int64_t end) {
            part(begin, end, 0, rows);
            after(int64_t(0), rows, begin * width, std::min(out, end * width));
        });
}

// Calls tile(row, n) for all rows, up to MOST at once, whose number n is a constant.
template <int64_t MOST, typename Tile>
inline void each_tile(int64_t rows, Tile tile) {
    for (int64_t row = 0; row < rows; row += MOST)
        with_constant<MOST>(rows - row, [&](auto n) { tile(row, n); });
}

}  // namespace glassformer
