// One matrix kernel in WebAssembly: four outputs for eight images at once. Everything else is plain JavaScript.

const IMAGES = 8; // per batch: two vectors of four floats
const LANES = 4 * IMAGES; // bytes of one activation of all images

/**
 * Assemble the module. Its function
 *   dot(weights, offsets, input, output, count, stride)
 * sums weights[k][j] * input[offsets[k]] over k for four outputs j, and stores the sums `stride` bytes apart.
 */
function assembleKernel() {
  const leb = (value) => (value < 128 ? [value] : [(value & 127) | 128, ...leb(value >> 7)]);
  const section = (id, content) => [id, ...leb(content.length), ...content];
  const name = (text) => [text.length, ...new TextEncoder().encode(text)];
  const get = (i) => [0x20, i],
    set = (i) => [0x21, i],
    tee = (i) => [0x22, i];
  const simd = (code, ...rest) => [0xfd, ...leb(code), ...rest];
  const load = (offset) => simd(0, 4, offset),
    splat = (offset) => simd(9, 2, offset),
    store = (offset) => simd(11, 4, offset);
  const add = simd(0xe4),
    multiply = simd(0xe6),
    step = (i, by) => [...get(i), 0x41, by, 0x6a, ...set(i)];
  const [WEIGHTS, OFFSETS, INPUT, OUTPUT, COUNT, STRIDE, PLACE, SUMS, LEFT, RIGHT, WEIGHT] = [
    0, 1, 2, 3, 4, 5, 6, 7, 15, 16, 17,
  ];
  const outputs = [0, 1, 2, 3];
  const accumulate = (i, vector) => [...get(WEIGHT), ...get(vector), ...multiply, ...get(i), ...add, ...set(i)];
  const body = [
    ...[0x03, 0x40], // loop over k
    ...[...get(INPUT), ...get(OFFSETS), 0x28, 2, 0, 0x6a, ...tee(PLACE), ...load(0), ...set(LEFT)],
    ...[...get(PLACE), ...load(16), ...set(RIGHT)],
    ...outputs.flatMap((j) => [
      ...[...get(WEIGHTS), ...splat(4 * j), ...set(WEIGHT)],
      ...accumulate(SUMS + 2 * j, LEFT),
      ...accumulate(SUMS + 2 * j + 1, RIGHT),
    ]),
    ...[...step(WEIGHTS, 16), ...step(OFFSETS, 4), ...get(COUNT), 0x41, 1, 0x6b, ...tee(COUNT), 0x0d, 0, 0x0b],
    ...outputs.flatMap((j) => [
      ...[...get(OUTPUT), ...get(SUMS + 2 * j), ...store(0), ...get(OUTPUT), ...get(SUMS + 2 * j + 1), ...store(16)],
      ...[...get(OUTPUT), ...get(STRIDE), 0x6a, ...set(OUTPUT)],
    ]),
    0x0b,
  ];
  const code = [2, 1, 0x7f, 11, 0x7b, ...body]; // locals: one i32, eleven vectors
  return new Uint8Array([
    ...[0, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
    ...section(1, [1, 0x60, 6, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0]),
    ...section(2, [1, ...name("m"), ...name("m"), 2, 0, 1]),
    ...section(3, [1, 0]),
    ...section(7, [1, ...name("dot"), 0, 0]),
    ...section(10, [1, ...leb(code.length), ...code]),
  ]);
}

/** Return `dot` in plain JavaScript, for browsers without vector instructions and for tests. */
function plainKernel(memory) {
  const floats = new Float32Array(memory.buffer),
    integers = new Int32Array(memory.buffer),
    sums = new Float32Array(4 * IMAGES);
  return (weights, offsets, input, output, count, stride) => {
    sums.fill(0);
    for (let k = 0; k < count; k++) {
      const place = (input + integers[offsets / 4 + k]) / 4;
      for (let j = 0; j < 4; j++) {
        const weight = floats[weights / 4 + 4 * k + j];
        for (let image = 0; image < IMAGES; image++) sums[j * IMAGES + image] += weight * floats[place + image];
      }
    }
    for (let j = 0; j < 4; j++)
      for (let image = 0; image < IMAGES; image++) floats[(output + j * stride) / 4 + image] = sums[j * IMAGES + image];
  };
}

/** Return memory and the fastest kernel that this browser runs. */
function makeKernel(pages, plain = false) {
  const memory = new WebAssembly.Memory({ initial: pages });
  const bytes = assembleKernel();
  if (plain || !WebAssembly.validate(bytes)) return { memory, dot: plainKernel(memory) };
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes), { m: { m: memory } });
  return { memory, dot: exports.dot };
}
