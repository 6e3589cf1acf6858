// Products of matrices of all numbers, tile by tile.

#pragma once

#include "tiles.h"

namespace glassformer {

constexpr int64_t TALL = 6;  // rows of a tile of a product: two vectors of each fill the registers of AVX2
template <typename T>
constexpr int64_t TILE = 2 * WIDTH<T>;  // columns of a tile

// A matrix row by row. Between rows lies room, so that the places of a column do not compete for a cache's sets.
template <typename T>
class Grid {
    std::unique_ptr<Room<T>> room;

   public:
    int64_t apart;

    Grid(int64_t rows, int64_t columns) : apart((columns + TILE<T> - 1) / TILE<T> * TILE<T> + 16) {
        room.reset(new Room<T>(rows * apart));
        std::fill(room->data, room->data + rows * apart, T(0));
    }
    T* operator[](int64_t row) const { return room->data + row * apart; }
};

// The factor on the left: how far apart its rows lie, and the terms of a sum within a row.
template <typename T>
struct Left {
    const T* from;
    int64_t row, term;
    Left at(int64_t i, int64_t k = 0) const { return {from + i * row + k * term, row, term}; }
};
template <typename T>
Left<T> as_it_is(const Grid<T>& grid) {
    return {grid[0], grid.apart, 1};
}
template <typename T>
Left<T> transposed(const Grid<T>& grid) {
    return {grid[0], 1, grid.apart};
}

// N rows of a tile of A B: the sum over k < n of A[i][k] B[k][j], added to what is there if `more`.
template <int N, typename T>
inline void tile(Left<T> a, const T* b, int64_t b_apart, int64_t n, T* c, int64_t c_apart, bool more) {
    Lanes<T> sums[N][2] = {};
    if (more)
        EACH for (int i = 0; i < N; ++i)
            EACH for (int v = 0; v < 2; ++v) sums[i][v] = load<Lanes<T>>(c + i * c_apart + v * WIDTH<T>);
    for (int64_t k = 0; k < n; ++k, a.from += a.term, b += b_apart) {
        Lanes<T> first = load<Lanes<T>>(b), second = load<Lanes<T>>(b + WIDTH<T>);
        stays(first), stays(second);
        EACH for (int i = 0; i < N; ++i) {
            Lanes<T> x = all<T>(a.from[i * a.row]);
            stays(x);
            sums[i][0] = fused(x, first, sums[i][0]);
            sums[i][1] = fused(x, second, sums[i][1]);
        }
    }
    EACH for (int i = 0; i < N; ++i)
        EACH for (int v = 0; v < 2; ++v) store(c + i * c_apart + v * WIDTH<T>, sums[i][v]);
}

// C [rows, columns] = A B of A [rows, n] and B [n, columns], which all stay in a near cache; added to C if `more`.
template <typename T>
void near_product(const Left<T>& A, const Grid<T>& B, const Grid<T>& C, int64_t n, int64_t rows, int64_t columns,
                  bool more = false) {
    for (int64_t j = 0; j < columns; j += TILE<T>)
        each_tile<TALL>(rows, [&](int64_t i, auto N) {
            tile<N>(A.at(i), B[0] + j, B.apart, n, C[i] + j, C.apart, more);
        });
}

}  // namespace glassformer
