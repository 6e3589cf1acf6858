// Newton-Schulz iterations of many matrices, for Muon (train/muon.py).
//
// Each multiplies X by the polynomial P = a I + b Y + c Y^2 of Y = X X^T. Polynomials of one matrix commute, so their
// product T can be kept instead of X, and P (P Y) is the next Y: the long rows of X are read once to make the first Y
// and once for T X. Polynomials of a symmetric matrix are symmetric, so half of each product is mirrored.

#include <new>
#include <utility>
#include <vector>

#include "products.h"

namespace glassformer {

constexpr int64_t PANEL = 256;  // numbers that a tile adds up at a time, so that its rows stay in the first cache
constexpr int64_t CLOSE_ROWS = 192;  // rows of tiles for each panel, whose factors stay in the second cache
constexpr int64_t SQUARE = 16;  // sides of what is mirrored at a time, so that lines of a cache are used whole

// C [rows, columns] = A^T B of A [K, rows] and B [K, columns].
template <typename T>
void product(const Grid<T>& A, const Grid<T>& B, Grid<T>& C, int64_t K, int64_t rows, int64_t columns,
             bool above_only = false) {
    static_assert(CLOSE_ROWS % TILE<T> == 0, "the first tile of rows that are close begins at or left of the diagonal");
    for (int64_t k = 0; k < K; k += PANEL)
        for (int64_t first = 0; first < rows; first += CLOSE_ROWS)
            for (int64_t j = above_only ? first : 0; j < columns; j += TILE<T>) {
                const int64_t end = std::min(rows, first + CLOSE_ROWS);
                each_tile<TALL>((above_only ? std::min(end, j + TILE<T>) : end) - first, [&](int64_t i, auto n) {
                    tile<n>(transposed(A).at(first + i, k), B[k] + j, B.apart, std::min(PANEL, K - k), C[first + i] + j,
                            C.apart, k > 0);
                });
            }
}

// The same for a C [n, n] that is known to be symmetric.
template <typename T>
void symmetric_product(const Grid<T>& A, const Grid<T>& B, Grid<T>& C, int64_t K, int64_t n) {
    product(A, B, C, K, n, n, true);
    for (int64_t above = 0; above < n; above += SQUARE)
        for (int64_t left = above; left < n; left += SQUARE)
            for (int64_t i = left; i < std::min(n, left + SQUARE); ++i)
                for (int64_t j = above; j < std::min(i, above + SQUARE); ++j) C[i][j] = C[j][i];
}

// What a thread needs for matrices of one shape. X has as many rows as the shorter side is long.
template <typename T>
class Iterations {
    const int64_t rows, columns, n, length;
    Grid<T> x, x_transposed, answer, y, p, t, room;

   public:
    Iterations(int64_t rows, int64_t columns)
        : rows(rows),
          columns(columns),
          n(std::min(rows, columns)),
          length(std::max(rows, columns)),
          x(n, length),
          x_transposed(length, n),
          answer(rows, columns),
          y(n, n),
          p(n, n),
          t(n, n),
          room(n, n) {}

    void operator()(T* matrix, const double* coefficients, int turns) {
        const bool tall = rows > columns;
        const Grid<T>&as_it_is = tall ? x_transposed : x, &other = tall ? x : x_transposed;
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < columns; ++j) as_it_is[i][j] = other[j][i] = matrix[i * columns + j];
        symmetric_product(x_transposed, x_transposed, y, length, n);
        for (int turn = 0; turn < turns; ++turn) {
            polynomial(coefficients);
            if (turn + 1 < turns) {
                symmetric_product(p, y, room, n, n);
                symmetric_product(p, room, y, n, n);
            }
            if (turn) symmetric_product(t, p, room, n, n);
            std::swap(t, turn ? room : p);
        }
        if (tall)
            product(x, t, answer, n, rows, columns);
        else
            product(t, x, answer, n, rows, columns);
        for (int64_t i = 0; i < rows; ++i) std::copy(answer[i], answer[i] + columns, matrix + i * columns);
    }

   private:
    void polynomial(const double* coefficients) {
        const T a = T(coefficients[0]), b = T(coefficients[1]), c = T(coefficients[2]);
        symmetric_product(y, y, p, n, n);
        for (int64_t i = 0; i < n; ++i) {
            for (int64_t j = 0; j < n; ++j) p[i][j] = b * y[i][j] + c * p[i][j];
            p[i][i] += a;
        }
    }
};

// Each matrix is one thread's, so that its numbers do not depend on how many threads there are.
template <typename T>
bool iterate(T* matrices, int64_t N, int64_t rows, int64_t columns, const double* coefficients, int turns,
             int threads) {
    try {
        std::vector<Iterations<T>> each;
        for (int64_t i = 0; i < std::min<int64_t>(N, threads); ++i) each.emplace_back(rows, columns);
#pragma omp parallel for schedule(dynamic) num_threads(each.size())
        for (int64_t i = 0; i < N; ++i)
            each[omp_get_thread_num()](matrices + i * rows * columns, coefficients, turns);
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

}  // namespace glassformer

extern "C" bool orthogonal_float(float* matrices, int64_t N, int64_t rows, int64_t columns, const double* coefficients,
                                 int turns, int threads) {
    return glassformer::iterate(matrices, N, rows, columns, coefficients, turns, threads);
}

extern "C" bool orthogonal_double(double* matrices, int64_t N, int64_t rows, int64_t columns,
                                  const double* coefficients, int turns, int threads) {
    return glassformer::iterate(matrices, N, rows, columns, coefficients, turns, threads);
}
