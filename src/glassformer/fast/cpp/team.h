// Threads that go through the same phases and share the work of each.
//
// Whoever comes first takes the next piece of a phase; once all pieces are done, whoever did them, the phase has ended.
// So a thread that gets no processor, because other programs run too, delays the others only while it holds a piece,
// and once at the end, where OpenMP waits for all. The barriers of OpenMP's loops would wait for it in every phase.
// Each piece begins slowly, as it waits for memory: where all things cost the same, a few large ones are faster.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

// Of OpenMP's runtime, whose header Apple's clang comes without.
extern "C" {
int omp_get_thread_num();
int omp_get_num_threads();
}

namespace glassformer {

constexpr int64_t PIECES = 2;       // for each thread
constexpr int64_t MANY_PIECES = 8;  // where some cost more than others
// Looks at a phase before the processor is offered to others, who may keep it for milliseconds: about 60 microseconds,
// longer than most pieces of a step of one text take.
constexpr int64_t PATIENCE = 1 << 18;

struct alignas(64) Phase {
    std::atomic<int64_t> taken{0}, done{0};
};

// One thread of a team, and the phase that it is in.
class Member {
    Phase* phases;
    int64_t left, threads;

   public:
    const int64_t number;

    Member(Phase* phases, int64_t n, int64_t number, int64_t threads)
        : phases(phases), left(n), threads(threads), number(number) {}

    // Calls work(begin, end) for parts of n things that do not overlap, and returns when all are done. All members call
    // it with the same n.
    template <typename Work>
    void share(int64_t n, Work work, int64_t pieces_each = PIECES) {
        if (threads == 1) return work(int64_t(0), n);
        if (left-- == 0) __builtin_trap();  // PHASES of stack.h are too few
        Phase& here = *phases++;
        const int64_t pieces = std::min(n, threads * pieces_each);
        for (int64_t i; (i = here.taken.fetch_add(1, std::memory_order_relaxed)) < pieces;) {
            work(n * i / pieces, n * (i + 1) / pieces);
            here.done.fetch_add(1, std::memory_order_release);
        }
        for (int64_t looks = 0; here.done.load(std::memory_order_acquire) < pieces; ++looks)
            if (looks >= PATIENCE) std::this_thread::yield();
    }
};

// Calls work(member) in each of up to `threads` threads. Together they go through at most n phases.
template <typename Work>
void in_team(int threads, int64_t n, Work work) {
    if (threads == 1) {  // may be within another team, where nothing may fail
        Member alone(nullptr, 0, 0, 1);
        return work(alone);
    }
    const std::unique_ptr<Phase[]> phases(new Phase[n]);
#pragma omp parallel num_threads(threads)
    {
        Member member(phases.get(), n, omp_get_thread_num(), omp_get_num_threads());
        work(member);
    }
}

}  // namespace glassformer
