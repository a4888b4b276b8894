// Layers of residual blocks of equal width, for adversarial attacks, and their gradient, in bfloat16. BatchNorm is
// folded into the weights.
//
// The number of layers is odd: a single layer, whose shortcut is optional, and two per block. Of the values before a
// ReLU, the gradient needs only the signs. A lane keeps one bit for each value that it computes. In the backward pass,
// the same lane computes the gradient of that value, so no other lane reads the bit.
#include "resident_convolution.cuh"

constexpr int kept_words = LINES * TILES / 8;  // per lane and unit
static_assert(LINES * TILES % 8 == 0, "bits must fill words");

struct alignas(4 * kept_words) Kept {
  unsigned word[kept_words];

  DEVICE static int place(int line, int half, int i) { return (2 * line + half) * values + i; }
};

constexpr int layer_kept = units * groups * 32;

// Return the address of this lane's bits for unit 0 of a layer; the bits for unit n follow n * groups * 32 elements
// later. Return null for layers without bits: the last layer, whose output is known, and layer -1.
template <typename T>
DEVICE T* lane_bits(T* kept, long long layers, int layer) {
  if (layer < 0 || layer >= layers - 1) return nullptr;
  const int lane = thread_index() % 32, group = thread_index() / 32 % groups;
  return kept + (block_index() * (layers - 1) + layer) * layer_kept + group * 32 + lane;
}

struct Rectified {  // the output of a layer, with bias and ReLU
  float bias[values];
  Kept* __restrict__ bits;  // null for the last layer
  Kept kept;

  DEVICE Rectified(const float* __restrict__ biases, Kept* bits) : bits(bits) {
#pragma unroll
    for (int i = 0; i < values; ++i) bias[i] = biases[first_filter() + i];
  }

  DEVICE void begin_unit(int) {
#pragma unroll
    for (int i = 0; i < kept_words; ++i) kept.word[i] = 0;
  }
  DEVICE void values_of(float (&made)[values], const float (&total)[TILES][4], int half) const {
#pragma unroll
    for (int i = 0; i < values; ++i) made[i] = total[i / 2][2 * half + i % 2] + bias[i];
  }
  DEVICE void round(unsigned (&pairs)[TILES], const float (&made)[values], int line, int half) {
    rectify(pairs, made);
#pragma unroll
    for (int i = 0; i < values; ++i) {
      const int place = Kept::place(line, half, i);
      kept.word[place / 32] |= static_cast<unsigned>(made[i] > 0) << place % 32;
    }
  }
  DEVICE void end_unit(int unit) const {
    if (bits) bits[unit * groups * 32] = kept;
  }
};

struct Masked {  // the gradient of a layer's input, zero where the ReLU before the layer returned zero
  const Kept* __restrict__ bits;  // null for the first layer
  Kept kept;

  DEVICE Masked(const Kept* bits) : bits(bits) {}

  DEVICE void begin_unit(int unit) {
    if (bits) {
      kept = bits[unit * groups * 32];
    } else {
#pragma unroll
      for (int i = 0; i < kept_words; ++i) kept.word[i] = ~0u;
    }
  }
  DEVICE void values_of(float (&made)[values], const float (&total)[TILES][4], int half) const {
#pragma unroll
    for (int i = 0; i < values; ++i) made[i] = total[i / 2][2 * half + i % 2];
  }
  DEVICE void round(unsigned (&pairs)[TILES], const float (&made)[values], int line, int half) const {
    float left[values];
#pragma unroll
    for (int i = 0; i < values; ++i) {
      const int place = Kept::place(line, half, i);
      left[i] = kept.word[place / 32] >> place % 32 & 1 ? made[i] : 0;
    }
#pragma unroll
    for (int i = 0; i < TILES; ++i) pairs[i] = round_pair(left[2 * i], left[2 * i + 1]);
  }
  DEVICE void end_unit(int) const {}
};

// Start copying images [count, side, side, CHANNELS] to a buffer.
DEVICE void read_images(unsigned buffer, const Words* __restrict__ images, int first, long long count) {
  for (int place = thread_index(); place < IMAGES * side * side * chunks; place += threads) {
    const int chunk = place % chunks, pixel = place / chunks % (side * side), image = place / (side * side * chunks);
    if (first + image < count)
      copy_to_shared(buffer + image * image_bytes + (pixel / side + 1) * line_bytes +
                         chunk_place<chunks>(pixel % side + 1, chunk),
                     images + static_cast<long long>(first) * (side * side * chunks) + place);
  }
}

extern "C" __global__ void __launch_bounds__(threads, RESIDENT)
    attack_layers(Words* __restrict__ out, Kept* __restrict__ kept, const Words* __restrict__ images,
                  const Words* __restrict__ shortcut, const float* __restrict__ biases,
                  const Words* __restrict__ weights, long long count, long long layers) {
  const unsigned memory = shared_memory();
  const int first = block_index() * IMAGES;
  clear_images(memory);
  barrier();
  read_images(memory + t_buffer, images, first, count);
  if (shortcut) read_images(memory + x_buffer, shortcut, first, count);
  wait_for_copies();
#pragma unroll 1
  for (int layer = 0; layer < layers; ++layer) {
    const bool into_x = layer % 2 == 0;
    convolve(memory, into_x, into_x && (shortcut || layer > 0), weights,
             Rectified(biases, lane_bits(kept, layers, layer)));
    weights += layer_weights;
    biases += CHANNELS;
  }
  barrier();
  write_images(out, memory + x_buffer, first, count);
}

// Compute the gradients of images and shortcut from `gradient`, the gradient of the values before the last ReLU. The
// filters are rotated and transposed: each filter computes the gradient of one channel.
extern "C" __global__ void __launch_bounds__(threads, RESIDENT)
    attack_layers_gradient(Words* __restrict__ images, Words* __restrict__ shortcut, const Kept* __restrict__ kept,
                           const Words* __restrict__ gradient, const Words* __restrict__ weights, long long count,
                           long long layers) {
  const unsigned memory = shared_memory();
  const int first = block_index() * IMAGES;
  clear_images(memory);
  barrier();
  read_images(memory + x_buffer, gradient, first, count);
  wait_for_copies();
#pragma unroll 1
  for (int layer = static_cast<int>(layers) - 1; layer >= 0; --layer) {
    const bool into_x = layer % 2 == 1;
    convolve(memory, into_x, into_x, weights + layer * layer_weights,
             Masked(lane_bits(kept, layers, layer - 1)));
  }
  barrier();
  write_images(images, memory + t_buffer, first, count);
  write_images(shortcut, memory + x_buffer, first, count);
}
