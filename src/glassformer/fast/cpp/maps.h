// Linear maps, y = x W^T + b, with W in the numbers of x, in bfloat16 or in 8 bits.
//
// These functions are called by all members of a team.

#pragma once

#include "same.h"
#include "upper.h"
#include "whole.h"

namespace glassformer {

// The rows of x [rows, in] begin `x_apart` numbers apart, those of y [rows, out] `y_apart`. `after`: see `Nothing`.
template <typename After = Nothing>
void apply(Member& member, const Map& map, const float* x, int64_t x_apart, float* y, int64_t y_apart, int64_t rows,
           const Rounded& room, After after = {}) {
    if (map.kind == INT8)
        map_whole(member, map, x, x_apart, y, y_apart, rows, room, after);
    else if (map.kind == BFLOAT16)
        map_upper(member, map, x, x_apart, y, y_apart, rows, after);
    else
        map_same(member, map, x, x_apart, y, y_apart, rows, after);
}

template <typename After = Nothing>
void apply(Member& member, const Map& map, const double* x, int64_t x_apart, double* y, int64_t y_apart, int64_t rows,
           const Rounded&, After after = {}) {
    map_same(member, map, x, x_apart, y, y_apart, rows, after);
}

}  // namespace glassformer
