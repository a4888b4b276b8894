// Convolutions of a stage of a CIFAR ResNet, in bfloat16, for kernels that keep all activations in shared memory.
//
// A block of threads takes IMAGES images through the stage. Each image has two buffers with a border of zeros: `x`
// holds the output of the previous residual block, which is the shortcut of the next, and `t` holds the output of the
// first convolution of a residual block. Pixels are contiguous: CHANNELS bfloat16 values, in chunks of 16 bytes.
//
// A convolution is a sum of matrix products over its 9 taps. The rows are 16 pixels of a line, or 8 pixels of the same
// line in each of two images. A warp keeps the weights of 8 * TILES filters in registers, and goes down LINES lines. It
// reads each line once per horizontal tap, and multiplies it with the weights of the three vertical taps, which
// contribute to three output lines.
//
// Constants: CHANNELS and SIDE (height and width) of images in the stage; IMAGES and WARPS per block of threads;
// RESIDENT, the number of blocks that share a multiprocessor; TILES and LINES as above; AHEAD, the number of products
// for which pixels are read ahead.
// `kernels/resident_stage.py` arranges the weights.

#pragma once

struct alignas(16) Words {
  unsigned word[4];
};

#ifndef EMULATED  // a test without a GPU defines these functions itself
#define DEVICE __device__ __forceinline__

DEVICE int thread_index() { return threadIdx.x; }
DEVICE int block_index() { return blockIdx.x; }
DEVICE void barrier() { __syncthreads(); }

DEVICE unsigned shared_memory() {
  extern __shared__ Words memory[];
  unsigned address;
  asm("{.reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a;}" : "=r"(address) : "l"(memory));
  return address;
}

DEVICE Words load_shared(unsigned address) {
  Words v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "r"(address)
               : "memory");
  return v;
}

DEVICE void store_shared(unsigned address, const Words& v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]),
               "r"(v.word[3])
               : "memory");
}

DEVICE void load_shared(unsigned address, unsigned (&v)[1]) {
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v[0]) : "r"(address) : "memory");
}

DEVICE void load_shared(unsigned address, unsigned (&v)[2]) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "r"(address) : "memory");
}

DEVICE void store_shared(unsigned address, const unsigned (&v)[1]) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(v[0]) : "memory");
}

DEVICE void store_shared(unsigned address, const unsigned (&v)[2]) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(v[0]), "r"(v[1]) : "memory");
}

DEVICE void copy_to_shared(unsigned address, const Words* source) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(source) : "memory");
}

DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Load a matrix of 16 x 16 values. Each lane passes the address of 8 values in a row: lanes 0 to 15 in the first 8
// columns of rows 0 to 15, lanes 16 to 31 in the last 8 columns.
DEVICE void load_matrix(unsigned (&a)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address)
               : "memory");
}

DEVICE void multiply(float (&total)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(total[0]), "+f"(total[1]), "+f"(total[2]), "+f"(total[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DEVICE unsigned round_pair(float low, float high) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Apply ReLU and round. NaN stays NaN: a network that returns NaN must not vote.
DEVICE unsigned rectify_pair(float low, float high) {
  unsigned pair;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Make the compiler compute a value here instead of where it is used.
DEVICE void hold(unsigned& v) { asm volatile("" : "+r"(v)); }

DEVICE float as_float(unsigned bits) { return __uint_as_float(bits); }
#endif

constexpr int side = SIDE, pitch = SIDE + 2, pixel_bytes = 2 * CHANNELS, line_bytes = pitch * pixel_bytes;
constexpr int buffer_bytes = pitch * line_bytes, image_bytes = 2 * buffer_bytes, chunks = CHANNELS / 8;
constexpr int threads = 32 * WARPS, depth = CHANNELS / 16, values = 2 * TILES;
constexpr int groups = CHANNELS / (8 * TILES);  // groups of filters
constexpr int teams = WARPS / groups;           // warps with the same filters
constexpr int paired = SIDE == 8 ? 2 : 1;       // images in the rows of a product
constexpr int across = SIDE == 8 ? 1 : SIDE / 16, strips = SIDE / LINES, units = IMAGES / paired * across * strips;
constexpr int weight_words = 9 * depth * values;  // per lane
constexpr int layer_weights = 9 * CHANNELS * CHANNELS / 8;  // in chunks of 16 bytes
constexpr int t_buffer = buffer_bytes, x_buffer = 0;

static_assert(WARPS % groups == 0 && IMAGES % paired == 0 && SIDE % LINES == 0, "work must divide evenly");
static_assert(weight_words % 4 == 0 && (SIDE == 8 || SIDE % 16 == 0), "unsupported shape");

// Offset of a chunk in a line. Chunks are permuted so that the chunks of 8 neighboring pixels are in different banks,
// as are the pairs of chunks of 4 neighboring pixels.
template <int count>
DEVICE int chunk_place(int column, int chunk) {
  int turn = column / (8 / count) % count;
  int change = count == 2 ? turn : count == 4 ? (turn & 1) << 1 | turn >> 1 : (turn & 3) << 1 | turn >> 2;
  return column * count * 16 + ((chunk ^ change) << 4);
}

// Load the weights of this lane, for the group of filters of its warp.
template <int count>
DEVICE void load_weights(unsigned (&b)[count], const Words* __restrict__ weights, int group, int lane) {
#pragma unroll
  for (int part = 0; part < count / 4; ++part) {
    Words words = weights[(group * (count / 4) + part) * 32 + lane];
#pragma unroll
    for (int i = 0; i < 4; ++i) b[4 * part + i] = words.word[i];
  }
}

DEVICE void add_pairs(float (&made)[values], const unsigned (&pairs)[TILES]) {
#pragma unroll
  for (int i = 0; i < TILES; ++i) {
    made[2 * i] += as_float(pairs[i] << 16);
    made[2 * i + 1] += as_float(pairs[i] & 0xffff0000u);
  }
}

DEVICE void rectify(unsigned (&pairs)[TILES], const float (&made)[values]) {
#pragma unroll
  for (int i = 0; i < TILES; ++i) pairs[i] = rectify_pair(made[2 * i], made[2 * i + 1]);
}

// Compute the addresses to which this lane writes the outputs of its filters: one for row lane / 4 and one for row
// lane / 4 + 8 of the product that begins at `column` of a line. `image` is the address of the line above in a buffer.
DEVICE void output_places(unsigned (&places)[2], unsigned image, int column, int filter, int lane) {
  unsigned first = image + line_bytes + filter % 8 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int right = column + lane / 4 + (paired == 2 ? 0 : 8 * half);
    places[half] = first + chunk_place<chunks>(right + 1, filter / 8) + (paired == 2 ? half * image_bytes : 0);
  }
}

// First of the `values` neighboring filters whose sums this lane holds.
DEVICE int first_filter() { return thread_index() / 32 % groups * 8 * TILES + thread_index() % 4 * values; }

// Apply a layer: convolve the images in one buffer and write the result to the other buffer. If `adding`, add the
// previous values of that other buffer in float32 before rounding. `layer` defines the remaining operations:
// `values_of` computes values from sums, `round` rounds them to pairs of bfloat16, and `begin_unit` and `end_unit` are
// called before and after a unit of work. `half` is 0 for the first 8 rows of a product and 1 for the last 8; `line`
// counts the lines of a unit.
template <class Layer>
DEVICE void convolve(unsigned memory, bool into_x, bool adding, const Words* __restrict__ weights, Layer layer) {
  const int lane = thread_index() % 32, warp = thread_index() / 32, group = warp % groups;
  const int filter = first_filter();
  unsigned b[weight_words];
  load_weights(b, weights, group, lane);
  barrier();  // other warps have written the images
  const unsigned source = memory + (into_x ? t_buffer : x_buffer), target = memory + (into_x ? x_buffer : t_buffer);
#pragma unroll 1
  for (int unit = warp / groups; unit < units; unit += teams) {
    const int top = unit % strips * LINES, column = unit / strips % across * 16;
    const unsigned start = unit / (strips * across) * paired * image_bytes + top * line_bytes;
    const int row = lane % 16;
    unsigned from[3], into[2], a[AHEAD + 1][4];
    float total[3][TILES][4];
#pragma unroll
    for (int dx = 0; dx < 3; ++dx) {
      int right = column + (paired == 2 ? row % 8 : row) + dx;
      from[dx] = source + start + (paired == 2 ? row / 8 * image_bytes : 0) + chunk_place<chunks>(right, lane / 16);
    }
    output_places(into, target + start, column, filter, lane);
    layer.begin_unit(unit);
    constexpr int steps = 3 * depth, all = steps * (LINES + 2);
#pragma unroll
    for (int step = 0; step < AHEAD; ++step)
      load_matrix(a[step], (from[step % steps / depth] ^ step % depth << 5) + step / steps * line_bytes);
#pragma unroll
    for (int step = 0; step < all; ++step) {
      const int line = step / steps, part = step % steps, next = step + AHEAD;
      if (next < all)
        load_matrix(a[next % (AHEAD + 1)],
                    (from[next % steps / depth] ^ next % depth << 5) + next / steps * line_bytes);
      const int done = line - 2;  // output line that is complete after this step
      unsigned shortcut[2][TILES];
      if (part == steps - 1 && done >= 0 && adding) {
#pragma unroll
        for (int half = 0; half < 2; ++half) load_shared(into[half] + done * line_bytes, shortcut[half]);
      }
#pragma unroll
      for (int dy = 0; dy < 3; ++dy) {
        const int y = line - dy;
        if (y < 0 || y >= LINES) continue;
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
          float(&sum)[4] = total[y % 3][tile];
          if (dy == 0 && part == 0) sum[0] = sum[1] = sum[2] = sum[3] = 0;
          const int word = ((dy * steps + part) * TILES + tile) * 2;
          multiply(sum, a[step % (AHEAD + 1)], b[word], b[word + 1]);
        }
      }
      if (part == steps - 1 && done >= 0) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float made[values];
          unsigned pairs[TILES];
          layer.values_of(made, total[done % 3], half);
          if (adding) add_pairs(made, shortcut[half]);
          layer.round(pairs, made, done, half);
          store_shared(into[half] + done * line_bytes, pairs);
        }
      }
    }
    layer.end_unit(unit);
  }
}

// Set both buffers of all images to zero.
DEVICE void clear_images(unsigned memory) {
  for (int place = thread_index(); place < IMAGES * image_bytes / 16; place += threads)
    store_shared(memory + 16 * place, Words{});
}

// Write the images of a buffer to `out` [count, side, side, CHANNELS].
DEVICE void write_images(Words* __restrict__ out, unsigned buffer, int first, long long count) {
  for (int place = thread_index(); place < IMAGES * side * side * chunks; place += threads) {
    const int chunk = place % chunks, pixel = place / chunks % (side * side), image = place / (side * side * chunks);
    if (first + image < count)
      out[static_cast<long long>(first) * (side * side * chunks) + place] =
          load_shared(buffer + image * image_bytes + (pixel / side + 1) * line_bytes +
                      chunk_place<chunks>(pixel % side + 1, chunk));
  }
}
