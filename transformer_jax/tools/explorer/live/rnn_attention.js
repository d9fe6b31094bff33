"use strict";
// The attention of recurrent decoders (Bahdanau et al. 2015; Luong et al. 2015; Chorowski et al. 2015). A score is a sum of terms, one for each
// dimension of a query and a key, so that it can be shown how they make it.

// q k, q k / sqrt(D) or q W k.
class ProductScore {
  constructor(kernel, factor) { Object.assign(this, { kernel, factor }); }
  query(state) { return scaled(this.kernel ? times(state, this.kernel) : state, this.factor); }
  key(annotation) { return annotation; }
  term(query, key, index) { return query[index] * key[index]; }
}

// v tanh(W q + U k), where the query has a bias and the key the location features.
class AdditiveScore {
  constructor(query, key, vector, bias) { Object.assign(this, { kernels: { query, key }, vector, bias }); }
  query(state) {
    const product = timesTransposed(state, this.kernels.query);
    return this.bias ? plus(product, this.bias) : product;
  }
  key(annotation) { return timesTransposed(annotation, this.kernels.key); }
  term(query, key, index) { return this.vector[index] * Math.tanh(query[index] + key[index]); }
}

// A score of each position, whatever its content: the key is a column of the matrix.
class PositionScore {
  constructor(kernel) { this.kernel = kernel; }
  query(state) { return state; }
  key(_, position) { return position < this.kernel.rows ? this.kernel.data.subarray(position * this.kernel.columns, (position + 1) * this.kernel.columns) : null; }
  term(query, key, index) { return query[index] * key[index]; }
}

// Windows on the source by the name of the attention: whether a state sees a position, and the term added to its score.
const WINDOWS = {
  local_m: ({ window }) => (state, position, length) => centered(Math.min(position, length - 1), window, false),
  local_p({ window, hiddenSize }, parameters) {
    const [matrix, vector] = ["kernel", "vector"].map((name) => parameters.get(`decoder/cross_attention/window/position_${name}`)), kernel = asKernel(matrix, hiddenSize);
    return (state, position, length) => {
      const hidden = timesTransposed(state, kernel).map(Math.tanh);
      return centered(sigmoid(dot(hidden, 0, vector.values, 0, hidden.length)) * (length - 1), window, true);
    };
  },
};
const WHOLE_SOURCE = () => () => ({ isVisible: () => true, added: () => 0 });

const centered = (center, half, isGaussian) => ({
  isVisible: (position) => Math.abs(position - center) <= half, added: (position) => isGaussian ? -((position - center) ** 2) / (2 * (half / 2) ** 2) : 0,
});

class RnnAttention {
  constructor(settings, parameters) {
    const { attention, hiddenSize, memorySize } = settings, value = (name) => (parameters.get(`decoder/cross_attention/${name}`) || {}).values;
    const kernel = (name, rows) => asKernel(parameters.get(`decoder/cross_attention/${name}`), rows);
    Object.assign(this, { settings, window: (WINDOWS[attention] || WHOLE_SOURCE)(settings, parameters) });
    this.isCumulative = attention === "cumulative_location_sensitive";
    if (attention.endsWith("location_sensitive")) {
      this.score = new AdditiveScore(kernel("query_kernel", hiddenSize), kernel("memory_kernel", memorySize), value("vector"), value("bias"));
      this.filters = asMatrix(parameters.get("decoder/cross_attention/filters"), settings.taps);
      this.features = kernel("feature_kernel", settings.filters);
    } else if (attention === "location") {
      this.score = new PositionScore(kernel("kernel", hiddenSize));
    } else if (["additive", "concat", "normalized_additive"].includes(attention)) {
      const vector = value("score/vector"), gain = value("score/gain"), length = Math.sqrt(dot(vector, 0, vector, 0, vector.length));
      this.score = new AdditiveScore(kernel("score/query_kernel", hiddenSize), kernel("score/memory_kernel", memorySize), gain ? scaled(vector, gain[0] / length) : vector, value("score/bias"));
    } else {
      const isPlain = attention === "dot" || attention === "scaled_dot";
      this.score = new ProductScore(isPlain ? null : asMatrix(parameters.get("decoder/cross_attention/score/kernel"), hiddenSize), attention === "scaled_dot" ? hiddenSize ** -0.5 : 1);
    }
  }

  keysOf(annotations) { return annotations.map((annotation, column) => this.score.key(annotation, column)); }

  // Features of the weights before (or of their sum) around a source position, projected; null without them.
  featuresAt(before, column, edits) {
    if (!this.filters || !edits.isOn("location")) return null;
    const { rows, columns, data } = this.filters, found = new Float32Array(columns), first = column - Math.floor((rows - 1) / 2);
    for (let tap = Math.max(0, -first); tap < rows && first + tap < before.length; tap++) {
      for (let column = 0; column < columns; column++) found[column] += before[first + tap] * data[tap * columns + column];
    }
    return timesTransposed(found, this.features);
  }

  // How a state and an annotation make a score: { query, key, features, terms }.
  parts(query, key, before, column, edits) {
    const features = this.featuresAt(before, column, edits), summed = features ? plus(key, features) : key;
    return { query, key, features, terms: query.map((_, index) => this.score.term(query, summed, index)) };
  }

  // Scores of all source positions; masked ones are -Infinity.
  scores(state, position, encoded, before, edits) {
    const query = this.score.query(state), { isVisible, added } = this.window(state, position, encoded.length);
    return Float32Array.from(encoded.keys, (key, column) => {
      if (!key || !isVisible(column) || (encoded.hidden && encoded.hidden.has(column))) return -Infinity;
      return this.parts(query, key, before, column, edits).terms.reduce((sum, term) => sum + term, added(column));
    });
  }

  weightsOf(scores) {
    const { normalizer, sharpness } = this.settings;
    if (normalizer === "sharpened") return softmax(scaled(scores, sharpness));
    return softmax(normalizer === "smoothed" ? scores.map((score) => -Math.log1p(Math.exp(-score))) : scores);
  }

  // { context, weights, after }: `after` is what the next step gets as `before`.
  attend(state, position, encoded, before, edits) {
    const weights = this.weightsOf(this.scores(state, position, encoded, before, edits)), context = new Float32Array(this.settings.memorySize);
    if (edits.isOn("cross.1.head.1")) {
      encoded.annotations.forEach((annotation, column) => {
        for (let index = 0; index < context.length; index++) context[index] += weights[column] * annotation[index];
      });
    }
    return { context, weights, after: this.isCumulative ? plus(before, weights) : weights };
  }
}
