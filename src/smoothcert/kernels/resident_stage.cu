// A whole stage of a CIFAR ResNet, for voting in bfloat16.
//
// A layer adds its shortcut, if any, to convolution * scale + bias, with the scale and bias of BatchNorm. It computes
// in float32 and rounds once.
#include "resident_convolution.cuh"

constexpr bool halving = CHANNELS != 16;  // the stage begins with a convolution that halves the image size

struct BatchNorm {  // followed by ReLU
  float scale[values], bias[values];

  DEVICE BatchNorm(const float* __restrict__ affine, int filter) {
#pragma unroll
    for (int i = 0; i < values; ++i) {
      scale[i] = affine[filter + i];
      bias[i] = affine[CHANNELS + filter + i];
    }
  }

  DEVICE void begin_unit(int) const {}
  DEVICE void values_of(float (&made)[values], const float (&total)[TILES][4], int half) const {
#pragma unroll
    for (int i = 0; i < values; ++i) made[i] = total[i / 2][2 * half + i % 2] * scale[i] + bias[i];
  }
  DEVICE void round(unsigned (&pairs)[TILES], const float (&made)[values], int, int) const { rectify(pairs, made); }
  DEVICE void end_unit(int) const {}
};

struct Images {  // input images, with strides in elements
  const unsigned short* values;
  int count, channels;
  long long image_step, channel_step, pixel_step;
};

#if CHANNELS == 16
// Copy images to `t`, padded with zeros to 16 channels.
DEVICE void enter(unsigned memory, const Images& images, int first, const Words*, const float*) {
  clear_images(memory);
  barrier();
#pragma unroll 4
  for (int place = thread_index(); place < IMAGES * side * side; place += threads) {
    const int image = place / (side * side), pixel = place % (side * side);
    if (first + image >= images.count) continue;
    const unsigned short* value = images.values + (first + image) * images.image_step + pixel * images.pixel_step;
    unsigned channel[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) channel[i] = i < images.channels ? value[i * images.channel_step] : 0;
    const unsigned words[2] = {channel[0] | channel[1] << 16, channel[2] | channel[3] << 16};
    store_shared(memory + image * image_bytes + t_buffer + (pixel / side + 1) * line_bytes +
                     chunk_place<chunks>(pixel % side + 1, 0),
                 words);
  }
}
#else
// Halve the image size: write the convolution of the input images to `t`, and the projection of the shortcut to `x`.
// The input images are first copied to the same memory, with the even columns of a line before its odd columns. So
// threads keep the output in registers until all threads have read the input.
DEVICE void enter(unsigned memory, const Images& images, int first, const Words* __restrict__ weights,
                  const float* __restrict__ affine) {
  constexpr int given = CHANNELS / 2, given_chunks = given / 8, given_side = 2 * SIDE, given_pitch = 2 * pitch - 2;
  constexpr int given_line = given_pitch * 2 * given, parts = given / 16, lines = side / teams;
  constexpr int given_pixels = given_pitch * given_pitch, odd = (SIDE + 1) * 2 * given;
  static_assert(given_pitch * given_line <= image_bytes && side % teams == 0 && across == 1, "unsupported shape");
  const int lane = thread_index() % 32, warp = thread_index() / 32, group = warp % groups, team = warp / groups;
  const int filter = group * 8 * TILES + lane % 4 * values, row = lane % 16;
#pragma unroll 1
  for (int image = 0; image < IMAGES; image += paired) {
    const unsigned here = memory + image * image_bytes;
    for (int place = thread_index(); place < paired * given_pixels * given_chunks; place += threads) {
      const int chunk = place % given_chunks, pixel = place / given_chunks % given_pixels;
      const int other = place / (given_chunks * given_pixels), number = first + image + other;
      const int y = pixel / given_pitch - 1, right = pixel % given_pitch, x = right - 1;
      const unsigned into = here + other * image_bytes + (y + 1) * given_line + right % 2 * odd +
                            chunk_place<given_chunks>(right / 2, chunk);
      if (number < images.count && y >= 0 && y < given_side && x >= 0 && x < given_side)
        copy_to_shared(into, reinterpret_cast<const Words*>(images.values) +
                                 ((static_cast<long long>(number) * given_side + y) * given_side + x) * given_chunks +
                                 chunk);
      else
        store_shared(into, Words{});
    }
    wait_for_copies();
    barrier();
    unsigned convolved[lines][2][TILES], projected[lines][2][TILES];
    {
      unsigned b[9 * parts * values], projection[parts * values];
      load_weights(b, weights, group, lane);
      load_weights(projection, weights + 9 * given * CHANNELS / 8, group, lane);
      const BatchNorm norm(affine, filter), projection_norm(affine + 2 * CHANNELS, filter);
      unsigned from[2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        from[i] = here + (paired == 2 ? row / 8 * image_bytes : 0) +
                  chunk_place<given_chunks>((paired == 2 ? row % 8 : row) + i, lane / 16) + 2 * team * given_line;
#pragma unroll
      for (int line = 0; line < lines; ++line) {
        float sums[TILES][4] = {}, straight[TILES][4] = {};
#pragma unroll
        for (int step = 0; step < 9 * parts; ++step) {
          const int dy = step / (3 * parts), dx = step / parts % 3, part = step % parts;
          unsigned a[4];
          load_matrix(a, (from[dx / 2] ^ part << 5) + dx % 2 * odd + (2 * teams * line + dy) * given_line);
#pragma unroll
          for (int tile = 0; tile < TILES; ++tile) {
            const int word = (step * TILES + tile) * 2, center = (part * TILES + tile) * 2;
            multiply(sums[tile], a, b[word], b[word + 1]);
            if (dy == 1 && dx == 1) multiply(straight[tile], a, projection[center], projection[center + 1]);
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float made[values];
          norm.values_of(made, sums, half);
          rectify(convolved[line][half], made);
          projection_norm.values_of(made, straight, half);
#pragma unroll
          for (int i = 0; i < TILES; ++i) {
            projected[line][half][i] = round_pair(made[2 * i], made[2 * i + 1]);
            hold(projected[line][half][i]), hold(convolved[line][half][i]);
          }
        }
      }
    }
    barrier();
    for (int place = thread_index(); place < paired * 2 * pitch * pitch; place += threads) {
      const int y = place / pitch % pitch, x = place % pitch;
      if (y > 0 && y <= side && x > 0 && x <= side) continue;
#pragma unroll
      for (int chunk = 0; chunk < chunks; ++chunk)  // `x` and `t` of an image are contiguous, and so are images
        store_shared(here + place * pixel_bytes + chunk * 16, Words{});
    }
    unsigned into[2];
    output_places(into, here + team * line_bytes, 0, filter, lane);
#pragma unroll
    for (int line = 0; line < lines; ++line)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        store_shared(into[half] + x_buffer + teams * line * line_bytes, projected[line][half]);
        store_shared(into[half] + t_buffer + teams * line * line_bytes, convolved[line][half]);
      }
  }
}
#endif

extern "C" __global__ void __launch_bounds__(threads, RESIDENT)
    resident_stage(Words* __restrict__ out, const unsigned short* __restrict__ values, const Words* __restrict__ weights,
                   const float* __restrict__ affine, long long count, long long layers, long long channels,
                   long long image_step, long long channel_step, long long pixel_step) {
  const unsigned memory = shared_memory();
  const int first = block_index() * IMAGES;
  const Images images{values,     static_cast<int>(count), static_cast<int>(channels),
                      image_step, channel_step,            pixel_step};
  enter(memory, images, first, weights, affine);
  if (halving) {
    weights += 10 * CHANNELS * CHANNELS / 16;  // 16 bytes are 8 weights
    affine += 4 * CHANNELS;
  }
#pragma unroll 1
  for (int layer = 0; layer < layers; ++layer) {
    const bool into_x = layer % 2 == 0;
    convolve(memory, into_x, into_x && (halving || layer > 0), weights, BatchNorm(affine, first_filter()));
    weights += layer_weights;
    affine += 2 * CHANNELS;
  }
  barrier();
  write_images(out, memory + x_buffer, first, count);
}
