// Products of many rows of x by the matrix unit that some processors have (AMX of Intel's): 16 rows by 64 columns of a
// group of W at once. The sums are those of the other ways, as all are exact.

#pragma once

#include "quads.h"

#if defined(HAS_AVX512) && defined(__AVX512VNNI__) && defined(__linux__) && \
    defined(__AMX_TILE__) && defined(__AMX_INT8__)
#define HAS_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace glassformer {

// The sums of one row of x for a group of outputs.
typedef Numbers<uint32_t, GROUP>::Vector Sums;

constexpr int64_t ALONE = 16;  // rows of x to be multiplied by a group of W while it is near, without the unit

#if defined(HAS_AMX)

// What all of the unit's tiles are told to have.
struct alignas(64) Shapes {
    uint8_t palette = 1, rest[15] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};  // of a row
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr Shapes SHAPES;

// The compiler's functions do not tell it that they read and write memory.
inline void in_memory() { asm volatile("" ::: "memory"); }

// The unit in the hands of this thread.
class Unit {
    static_assert(std::is_same_v<Way, Unsigned>);
    const bool here;

    // Linux lets a process use it once it has asked.
    static bool may_be_used() {
        constexpr long ASKS = 0x1023, TILES = 18;  // ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA of Linux
        static const bool may = syscall(SYS_arch_prctl, ASKS, TILES) == 0;
        return may;
    }

    // Four tiles of rows of x are multiplied by the same of W: the sums of one are under way while the others begin. All
    // rows of a tile begin with the one row of `head`.
    template <int N>
    static void add_tiles(const int8_t* head, const int8_t* w, const int8_t* x, int64_t apart, int64_t columns,
                          Sums* sums) {
        const int8_t* rows[N];
        for (int n = 0; n < N; ++n) rows[n] = x + n * ROWS * apart;
        in_memory();
        _tile_loadd(0, head, 0);
        if constexpr (N > 1) _tile_loadd(1, head, 0);
        if constexpr (N > 2) _tile_loadd(2, head, 0);
        if constexpr (N > 3) _tile_loadd(3, head, 0);
        for (int64_t d = 0; d < columns; d += COLUMNS, w += GROUP * COLUMNS) {
            for (int64_t at = 0; at < GROUP * COLUMNS; at += PIECE) request(w + AHEAD + at);
            _tile_loadd(7, w, PIECE);
            _tile_loadd(4, rows[0] + d, apart);
            _tile_dpbusd(0, 4, 7);
            if constexpr (N > 1) {
                _tile_loadd(5, rows[1] + d, apart);
                _tile_dpbusd(1, 5, 7);
            }
            if constexpr (N > 2) {
                _tile_loadd(6, rows[2] + d, apart);
                _tile_dpbusd(2, 6, 7);
            }
            if constexpr (N > 3) {
                _tile_loadd(4, rows[3] + d, apart);
                _tile_dpbusd(3, 4, 7);
            }
        }
        _tile_stored(0, sums, sizeof(Sums));
        if constexpr (N > 1) _tile_stored(1, sums + ROWS, sizeof(Sums));
        if constexpr (N > 2) _tile_stored(2, sums + 2 * ROWS, sizeof(Sums));
        if constexpr (N > 3) _tile_stored(3, sums + 3 * ROWS, sizeof(Sums));
        in_memory();
    }

   public:
    static constexpr int64_t ROWS = 16, COLUMNS = 64;  // of x in a tile
    static constexpr int64_t MOST = 4 * ROWS;          // at once
    static constexpr int64_t FEWEST = 4;               // for which it is worth while
    static constexpr int64_t BEHIND = ROWS - 1;        // behind the last one, which it may read

    explicit Unit(int64_t rows) : here(rows >= FEWEST && may_be_used()) {
        if (here) _tile_loadconfig(&SHAPES);
    }
    ~Unit() {
        if (here) _tile_release();
    }
    Unit(const Unit&) = delete;
    Unit& operator=(const Unit&) = delete;

    // Rows of x to be multiplied by a group of W while it is near.
    int64_t near() const { return here ? MOST : ALONE; }

    // Writes the sums of n <= MOST rows, which begin `apart` bytes apart, over as many columns as fill tiles, and returns
    // how many; none if it is not here. A group of W begins with what is added to each row's, to which this way adds
    // nothing of the row (`Unsigned`). Up to a whole tile, it also reads what lies behind the rows, and writes behind
    // their sums.
    int64_t begin(const int8_t* group, const int8_t* x, int64_t apart, int64_t columns, int64_t n, Sums* sums) const {
        const int64_t whole = here ? columns / COLUMNS * COLUMNS : 0;
        if (whole)
            with_constant<MOST / ROWS>((n + ROWS - 1) / ROWS, [&](auto tiles) {
                add_tiles<tiles>(group, group + sizeof(Sums), x, apart, whole, sums);
            });
        return whole;
    }
};

#else

// There is none.
struct Unit {
    static constexpr int64_t MOST = ALONE, BEHIND = 0;
    explicit Unit(int64_t) {}
    int64_t near() const { return ALONE; }
    int64_t begin(const int8_t*, const int8_t*, int64_t, int64_t, int64_t, Sums*) const { return 0; }
};

#endif

}  // namespace glassformer
