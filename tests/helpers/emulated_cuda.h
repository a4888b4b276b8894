// Functions that a CUDA kernel uses, for threads emulated on the CPU: include this before the kernel.
//
// The threads of a block are fibers. They switch at barriers and at operations of a whole warp.
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define EMULATED
#define DEVICE inline
#define __global__
#define __restrict__ __restrict
#define __launch_bounds__(...)

namespace emulated {
constexpr int warp_size = 32, stack_bytes = 1 << 17;

struct Fiber {
  ucontext_t context;  // where it starts
  jmp_buf resume;      // where it goes on: faster than swapping contexts, which saves signals
  std::vector<char> stack = std::vector<char>(stack_bytes);
  bool started = false, done = false;
};

struct Barrier {
  int arrived = 0, turn = 0;
};

struct Warp {
  Barrier barrier;
  unsigned address[warp_size], a[warp_size][4], b[warp_size][2];
};

struct Block {
  int number;
  std::function<void()> kernel;
  std::vector<unsigned char> shared;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Barrier barrier;
  jmp_buf scheduler;
  int current = 0, arrivals = 0;
};

inline Block* block;

inline void wait(Barrier& barrier, int threads) {
  const int turn = barrier.turn;
  ++block->arrivals;
  if (++barrier.arrived == threads) barrier.arrived = 0, ++barrier.turn;
  while (barrier.turn == turn)
    if (!_setjmp(block->fibers[block->current].resume)) _longjmp(block->scheduler, 1);
}

inline Warp& warp() { return block->warps[block->current / warp_size]; }
inline int lane() { return block->current % warp_size; }
inline void wait_for_warp() { wait(warp().barrier, warp_size); }

inline void start() {
  block->kernel();
  block->fibers[block->current].done = true;
  _longjmp(block->scheduler, 1);
}

inline void take_turn(Fiber& fiber) {
  if (_setjmp(block->scheduler)) return;
  if (fiber.started) _longjmp(fiber.resume, 1);
  fiber.started = true;
  setcontext(&fiber.context);
}

// A warp runs until it waits for others, then the next, in this order or backwards: the result must not depend on it.
inline void run(int number, int threads, int shared_bytes, bool backwards, std::function<void()> kernel) {
  Block here{number, kernel, std::vector<unsigned char>(shared_bytes, 0xff)};  // NaN: nothing is cleared
  here.fibers.resize(threads), here.warps.resize(threads / warp_size), block = &here;
  for (auto& fiber : here.fibers) {
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, start, 0);
  }
  for (int done = 0; done < threads;)
    for (int i = 0; i < threads / warp_size; ++i) {
      const int first = (backwards ? threads / warp_size - 1 - i : i) * warp_size;
      for (int before = -1; before != here.arrivals;) {
        before = here.arrivals;
        for (int lane = 0; lane < warp_size; ++lane) {
          here.current = first + (backwards ? warp_size - 1 - lane : lane);
          if (here.fibers[here.current].done) continue;
          take_turn(here.fibers[here.current]);
          done += here.fibers[here.current].done;
        }
      }
    }
}

template <typename T>
T& at(unsigned address) {
  if (address % sizeof(T) || address + sizeof(T) > block->shared.size()) std::abort();
  return reinterpret_cast<T&>(block->shared[address]);
}

inline float value(unsigned pair, int which) {
  const unsigned bits = which ? pair & 0xffff0000u : pair << 16;
  float number;
  std::memcpy(&number, &bits, 4);
  return number;
}

inline unsigned rounded(float number) {  // to nearest, ties to even
  unsigned bits;
  std::memcpy(&bits, &number, 4);
  return std::isnan(number) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
}  // namespace emulated

struct Words;

inline int thread_index() { return emulated::block->current; }
inline int block_index() { return emulated::block->number; }
inline void barrier() { emulated::wait(emulated::block->barrier, static_cast<int>(emulated::block->fibers.size())); }
inline unsigned shared_memory() { return 0; }
inline void wait_for_copies() {}
inline void hold(unsigned&) {}
inline float as_float(unsigned bits) {
  float number;
  std::memcpy(&number, &bits, 4);
  return number;
}

template <typename T = Words>
T load_shared(unsigned address) {
  return emulated::at<T>(address);
}

template <typename T>
void store_shared(unsigned address, const T& values) {
  std::memcpy(&emulated::at<T>(address), &values, sizeof values);
}

template <int count>
void load_shared(unsigned address, unsigned (&values)[count]) {
  std::memcpy(values, &emulated::at<unsigned[count]>(address), sizeof values);
}

template <typename T>
void copy_to_shared(unsigned address, const T* source) {
  store_shared(address, *source);
}

inline void load_matrix(unsigned (&a)[4], unsigned address) {
  auto& warp = emulated::warp();
  const int lane = emulated::lane();
  warp.address[lane] = address;
  emulated::wait_for_warp();
  for (int i = 0; i < 4; ++i) {
    unsigned row[4];
    load_shared(warp.address[8 * i + lane / 4], row);
    a[i] = row[lane % 4];
  }
  emulated::wait_for_warp();
}

inline void multiply(float (&total)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  auto& warp = emulated::warp();
  const int lane = emulated::lane(), row = lane / 4, column = lane % 4 * 2;
  std::memcpy(warp.a[lane], a, sizeof a);
  warp.b[lane][0] = b0, warp.b[lane][1] = b1;
  emulated::wait_for_warp();
  for (int i = 0; i < 4; ++i) {
    float sum = 0;  // of products without error
    for (int k = 0; k < 16; ++k) {
      const unsigned left = warp.a[row * 4 + k % 8 / 2][k / 8 * 2 + i / 2];
      const unsigned right = warp.b[(column + i % 2) * 4 + k % 8 / 2][k / 8];
      sum += emulated::value(left, k % 2) * emulated::value(right, k % 2);
    }
    total[i] += sum;
  }
  emulated::wait_for_warp();
}

inline unsigned round_pair(float low, float high) { return emulated::rounded(low) | emulated::rounded(high) << 16; }

inline unsigned rectify_pair(float low, float high) {
  return round_pair(low < 0 ? 0 : low, high < 0 ? 0 : high);  // NaN stays
}
