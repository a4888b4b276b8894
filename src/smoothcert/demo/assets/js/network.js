// LeNet with quantized weights: reading its file, scores of eight images at once, and gradients of scores.

const SIDE = 28,
  PIXELS = SIDE * SIDE,
  CLASSES = 10;

/** Read a gzip-compressed safetensors file: int8 weights with a scale per output, and float32 biases. */
async function readNetwork(bytes) {
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const buffer = await new Response(unpacked).arrayBuffer();
  const start = 8 + Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, start - 8)));
  const tensor = (name, type) => new type(buffer.slice(...header[name].data_offsets.map((end) => start + end)));
  return ["conv1", "conv2", "fc1", "fc2"].map((name) => {
    const whole = tensor(`${name}.weight`, Int8Array),
      scale = tensor(`${name}.scale`, Float32Array),
      bias = tensor(`${name}.bias`, Float32Array);
    const count = whole.length / bias.length;
    return { bias, count, weight: Float32Array.from(whole, (value, i) => value * scale[Math.floor(i / count)]) };
  });
}

/** A network in WebAssembly memory. Activations are stored as [channel][row][column][image]. */
class Network {
  constructor(layers, plain = false) {
    this.layers = layers;
    const outputs = layers.map((layer) => 4 * Math.ceil(layer.bias.length / 4));
    // Per layer: side of the output, channels of the input, side of the filters, and side of the input.
    this.shapes = [
      { positions: 24, channels: 1, size: 5, side: SIDE },
      { positions: 8, channels: 20, size: 5, side: 12 },
      { positions: 1, channels: 800, size: 1, side: 1 },
      { positions: 1, channels: 500, size: 1, side: 1 },
    ];
    let end = 0;
    const reserve = (bytes) => {
      end += bytes;
      return end - bytes;
    };
    this.places = layers.map((layer, i) => ({
      weights: reserve(outputs[i] * layer.count * 4),
      offsets: reserve(layer.count * 4),
      input: reserve(this.shapes[i].channels * this.shapes[i].side ** 2 * LANES),
      output: reserve(outputs[i] * this.shapes[i].positions ** 2 * LANES),
    }));
    const { memory, dot } = makeKernel(Math.ceil(end / 65536), plain);
    this.dot = dot;
    this.floats = new Float32Array(memory.buffer);
    layers.forEach((layer, i) => {
      this.pack(layer, this.places[i], this.shapes[i], new Int32Array(memory.buffer));
    });
  }

  /** Store the weights in groups of four outputs, and the offset of each input of a filter from its first input. */
  pack({ weight, bias, count }, place, { size, side }, integers) {
    for (let output = 0; output < bias.length; output++)
      for (let k = 0; k < count; k++)
        this.floats[place.weights / 4 + ((output >> 2) * count + k) * 4 + (output & 3)] = weight[output * count + k];
    for (let k = 0; k < count; k++) {
      const channel = Math.floor(k / size ** 2),
        row = Math.floor(k / size) % size;
      integers[place.offsets / 4 + k] = ((channel * side + row) * side + (k % size)) * LANES;
    }
  }

  /** Sum inputs times weights at all positions of a layer; `activate` and `scores` add the biases. */
  multiply(i) {
    const { weights, offsets, input, output } = this.places[i],
      { positions, side } = this.shapes[i],
      { count, bias } = this.layers[i];
    for (let group = 0; group < bias.length; group += 4)
      for (let row = 0; row < positions; row++)
        for (let column = 0; column < positions; column++) {
          const to = output + (group * positions ** 2 + row * positions + column) * LANES;
          const from = input + (row * side + column) * LANES;
          this.dot(weights + group * count * 4, offsets, from, to, count, positions ** 2 * LANES);
        }
  }

  /** Put relu(max over 2x2 windows + bias) of a convolution, or relu(output + bias), into the next layer's input. */
  activate(i) {
    const { bias } = this.layers[i],
      { positions } = this.shapes[i],
      floats = this.floats;
    const step = positions > 1 ? 2 : 1,
      row = positions * IMAGES;
    let from = this.places[i].output / 4,
      to = this.places[i + 1].input / 4;
    for (let channel = 0; channel < bias.length; channel++, from += positions * row)
      for (let y = 0; y < positions; y += step)
        for (let x = 0; x < positions; x += step)
          for (let image = 0; image < IMAGES; image++) {
            const at = from + y * row + x * IMAGES + image;
            let most = floats[at];
            if (step === 2) most = Math.max(most, floats[at + IMAGES], floats[at + row], floats[at + row + IMAGES]);
            floats[to++] = Math.max(0, most + bias[channel]);
          }
  }

  /** Return the scores of up to eight images (Float32Array of 784 each), one array of ten per image. */
  scores(images) {
    const input = this.places[0].input / 4;
    images.forEach((image, lane) => {
      for (let i = 0; i < PIXELS; i++) this.floats[input + i * IMAGES + lane] = image[i];
    });
    for (let i = 0; i < 4; i++) {
      this.multiply(i);
      if (i < 3) this.activate(i);
    }
    const output = this.places[3].output / 4;
    return images.map((_, lane) =>
      Float32Array.from(this.layers[3].bias, (bias, label) => bias + this.floats[output + label * IMAGES + lane]),
    );
  }

  /** Return the gradient of a weighted sum of scores with respect to image `lane` of the last call of `scores`. */
  gradient(lane, scoreWeights) {
    const [conv1, conv2, fc1, fc2] = this.layers;
    const hidden = this.transposed(fc2, scoreWeights, this.places[3].input / 4 + lane);
    const pooled = this.transposed(fc1, hidden, this.places[2].input / 4 + lane);
    const middle = this.unpooled(conv2, 1, pooled, lane);
    const first = this.places[1].input / 4 + lane;
    for (let i = 0; i < middle.length; i++) if (this.floats[first + i * IMAGES] <= 0) middle[i] = 0;
    return this.unpooled(conv1, 0, middle, lane);
  }

  /** Return the gradient with respect to a linear layer's inputs before their ReLU: 0 where the ReLU is flat. */
  transposed({ weight, count }, outer, inputs) {
    const inner = new Float32Array(count);
    outer.forEach((value, output) => {
      if (value) for (let i = 0, w = output * count; i < count; i++, w++) inner[i] += value * weight[w];
    });
    for (let i = 0; i < count; i++) if (this.floats[inputs + i * IMAGES] <= 0) inner[i] = 0;
    return inner;
  }

  /** Return the gradient with respect to a convolution's input, from the gradient after its max pooling. */
  unpooled({ weight, bias, count }, i, outer, lane) {
    const { positions, channels, side, size } = this.shapes[i],
      inner = new Float32Array(channels * side * side);
    const output = this.places[i].output / 4 + lane;
    for (let channel = 0, at = 0; channel < bias.length; channel++)
      for (let y = 0; y < positions; y += 2)
        for (let x = 0; x < positions; x += 2, at++) {
          if (!outer[at]) continue;
          let best = 0,
            most = -Infinity;
          for (const place of [0, 1, positions, positions + 1]) {
            const value = this.floats[output + (channel * positions ** 2 + y * positions + x + place) * IMAGES];
            if (value > most) [most, best] = [value, place];
          }
          const top = y + (best >= positions ? 1 : 0),
            left = x + (best % positions);
          let w = channel * count;
          for (let from = 0; from < channels; from++)
            for (let dy = 0; dy < size; dy++) {
              const to = (from * side + top + dy) * side + left;
              for (let dx = 0; dx < size; dx++) inner[to + dx] += outer[at] * weight[w++];
            }
        }
    return inner;
  }
}
