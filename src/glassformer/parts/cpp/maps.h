// Linear maps, y = x W^T + b, with W in the numbers of x, in bfloat16 or in 8 bits.
//
// These functions are called by all members of a team.

#pragma once

#include "same.h"
#include "upper.h"
#include "whole.h"

namespace glassformer {

// x [rows, in] lies row by row; the rows of y [rows, out] begin `stride` numbers apart. `after`: see `Nothing`.
template <typename After = Nothing>
void apply(Member& member, const Map& map, const float* x, float* y, int64_t rows, int64_t stride, const Rounded& room,
           After after = {}) {
    if (map.kind == INT8)
        map_whole(member, map, x, y, rows, stride, room, after);
    else if (map.kind == BFLOAT16)
        map_upper(member, map, x, y, rows, stride, after);
    else
        map_same(member, map, x, y, rows, stride, after);
}

template <typename After = Nothing>
void apply(Member& member, const Map& map, const double* x, double* y, int64_t rows, int64_t stride, const Rounded&,
           After after = {}) {
    map_same(member, map, x, y, rows, stride, after);
}

}  // namespace glassformer
