"use strict";
// The updates of penchant in plain doubles: margins are kept, the loss is known by its logarithm, and nothing underflows.
// Parameters are one flat array; `model` knows how they make a weight, `data` how a weight makes margins, and how the loss weighs these.

const EPS = 2 ** -52;
const HELD = 600; // a weight e^-600 is still a double, and so is what is made of it
const RESOLUTION = 1e-3; // an absolute margin error above this makes weights wrong by 0.1 %

// ---------------------------------------------------------------- logarithms

const softplus = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

function logSoftplus(x) {
  if (x >= 0) return Math.log(softplus(x));
  const u = Math.exp(x);
  return x + (u < 1e-5 ? -u / 2 + (5 * u * u) / 24 : Math.log(Math.log1p(u) / u));
}

function logExpm1(logX) {
  const x = Math.exp(logX);
  if (x > 30) return logX + x + Math.log1p(-Math.exp(-x)) - Math.log(x);
  const half = x / 2, square = half * half;
  const series = square * (1 / 6 - square * (1 / 180 - square * (1 / 2835 - square / 37800)));
  return logX + half + (x < 0.1 ? series : Math.log(Math.sinh(half) / half));
}

function logAddExp(a, b) {
  const top = Math.max(a, b);
  return top === -Infinity ? top : top + Math.log1p(Math.exp(-Math.abs(a - b)));
}

function logSum(terms) {
  let top = -Infinity, total = 0;
  for (const term of terms) top = Math.max(top, term);
  if (!Number.isFinite(top)) return top;
  for (const term of terms) total += Math.exp(term - top);
  return top + Math.log(total);
}

const LOSSES = {
  exponential: {
    value: (z) => Math.exp(-z),
    slope: (z) => -Math.exp(-z),
    logValue: (z) => -z,
    logSlope: (z) => -z,
    logSlopeRate: () => -1,
    logGap: (best, logDeficit) => -best + logExpm1(logDeficit),
  },
  logistic: {
    value: (z) => softplus(-z),
    slope: (z) => -1 / (1 + Math.exp(z)),
    logValue: (z) => logSoftplus(-z),
    logSlope: (z) => -softplus(z),
    logSlopeRate: (z) => -1 / (1 + Math.exp(-z)),
    logGap: (best, logDeficit) => logSoftplus(-softplus(best) + logExpm1(logDeficit)),
  },
};

// ---------------------------------------------------------------- small linear algebra

function dot(a, b) {
  let total = 0;
  for (let i = 0; i < a.length; i++) total += a[i] * b[i];
  return total;
}

const length = (a) => Math.sqrt(dot(a, a));

function multiply(matrix, vector) {
  return Float64Array.from(matrix, (row) => dot(row, vector));
}

/** LU factors with row exchanges; returns a function that solves. */
function factorise(matrix) {
  const n = matrix.length, rows = matrix.map((row) => Float64Array.from(row)), order = rows.map((_, i) => i);
  for (let k = 0; k < n; k++) {
    let best = k;
    for (let i = k + 1; i < n; i++) if (Math.abs(rows[i][k]) > Math.abs(rows[best][k])) best = i;
    [rows[k], rows[best]] = [rows[best], rows[k]];
    [order[k], order[best]] = [order[best], order[k]];
    for (let i = k + 1; i < n; i++) {
      const factor = (rows[i][k] /= rows[k][k]);
      if (factor !== 0) for (let j = k + 1; j < n; j++) rows[i][j] -= factor * rows[k][j];
    }
  }
  return (right) => {
    const x = Float64Array.from(order, (i) => right[i]);
    for (let i = 0; i < n; i++) for (let j = 0; j < i; j++) x[i] -= rows[i][j] * x[j];
    for (let i = n - 1; i >= 0; i--) {
      for (let j = i + 1; j < n; j++) x[i] -= rows[i][j] * x[j];
      x[i] /= rows[i][i];
    }
    return x;
  };
}

/** Singular values, and U V', of a matrix given by rows in a flat array: one-sided Jacobi on the longer side. */
function singular(flat, offset, rows, columns) {
  const wide = columns > rows, n = wide ? rows : columns, m = wide ? columns : rows;
  const at = (i, j) => flat[offset + (wide ? j * columns + i : i * columns + j)];
  const a = Array.from({ length: n }, (_, j) => Float64Array.from({ length: m }, (_, i) => at(i, j)));
  const v = Array.from({ length: n }, (_, j) => Float64Array.from({ length: n }, (_, i) => +(i === j)));
  for (let sweep = 0, off = 1; sweep < 60 && off > 1e-16; sweep++) {
    off = 0;
    for (let p = 0; p < n; p++) for (let q = p + 1; q < n; q++) {
      const pp = dot(a[p], a[p]), qq = dot(a[q], a[q]), pq = dot(a[p], a[q]);
      if (pq === 0) continue;
      off = Math.max(off, Math.abs(pq) / Math.sqrt(pp * qq));
      const zeta = (qq - pp) / (2 * pq), t = (zeta < 0 ? -1 : 1) / (Math.abs(zeta) + Math.hypot(1, zeta));
      const c = 1 / Math.hypot(1, t), s = c * t;
      for (const pair of [[a[p], a[q]], [v[p], v[q]]]) for (let i = 0; i < pair[0].length; i++) {
        const x = pair[0][i], y = pair[1][i];
        pair[0][i] = c * x - s * y;
        pair[1][i] = s * x + c * y;
      }
    }
  }
  const values = a.map(length), polar = new Float64Array(rows * columns);
  for (let k = 0; k < n; k++) for (let i = 0; i < m; i++) for (let j = 0; j < n; j++)
    if (values[k] > 0) polar[wide ? j * columns + i : i * columns + j] += (a[k][i] / values[k]) * v[k][j];
  return { values, polar };
}

// ---------------------------------------------------------------- data: a weight makes margins, the loss weighs them

function classification({ inputs, labels }, loss) {
  const rows = inputs.map((x, i) => Float64Array.from(x, (value) => value * labels[i]));
  const n = rows.length, shift = Math.log(n);
  return {
    kind: "classification", rows, count: n, shape: [inputs[0].length], attained: false,
    margins: (w) => multiply(rows, w),
    adjoint(c) {
      const found = new Float64Array(rows[0].length);
      for (let i = 0; i < n; i++) for (let j = 0; j < found.length; j++) found[j] += c[i] * rows[i][j];
      return found;
    },
    weigh(margins) {
      const logs = margins.map(loss.logValue), top = Math.max(...logs);
      let total = 0;
      for (const one of logs) total += Math.exp(one - top);
      const logExcess = top + Math.log(total) - shift;
      return { logExcess, logScale: logExcess, weights: margins.map((m) => Math.exp(loss.logSlope(m) - top) / total) };
    },
    /** d weights / d margins, with weights in the units of `weighing`. */
    weightRates(margins, weighing) {
      return rows.map((_, i) => {
        const row = new Float64Array(n);
        row[i] = loss.logSlopeRate(margins[i]) * weighing.weights[i];
        return row;
      });
    },
    ceiling: (highest) => highest,
    ordinary(w, round) {
      const margins = rows.map((row) => rounded(row, w, round));
      const slopes = margins.map((m) => round(round(-loss.slope(m)) / n));
      let total = 0;
      for (const m of margins) total = round(total + round(loss.value(m) / n));
      return { value: total, gradient: combine(rows, slopes.map((s) => -s), round) };
    },
  };
}

function tokenSelection({ tokens, scores, queries }, loss) {
  const n = tokens.length, T = tokens[0].length, d = tokens[0][0].length;
  const asked = (queries || tokens.map((one) => one[0])).map((q) => Float64Array.from(q)), e = asked[0].length;
  const best = scores.map((row) => row.indexOf(Math.max(...row))), shift = Math.log(n);
  const others = best.map((o) => Array.from({ length: T }, (_, t) => t).filter((t) => t !== o));
  const apart = others.map((row, i) => row.map((t) => Float64Array.from(tokens[i][t], (x, j) => tokens[i][best[i]][j] - x)));
  const gaps = scores.map((row) => row.map((top) => Float64Array.from(row, (one) => top - one)));
  const logGaps = gaps.map((table) => table.map((row) => row.map((gap) => Math.log(Math.abs(gap)))));
  const size = T - 1, share = new Float64Array(T), logShare = new Float64Array(T);

  function attend(margins, i) {
    logShare[best[i]] = 0;
    for (let k = 0; k < size; k++) logShare[others[i][k]] = -margins[i * size + k];
    let leader = 0, total = 0;
    for (let t = 1; t < T; t++) if (logShare[t] > logShare[leader]) leader = t;
    const top = logShare[leader];
    for (let t = 0; t < T; t++) total += share[t] = Math.exp(logShare[t] - top);
    const norm = Math.log(total);
    for (let t = 0; t < T; t++) {
      logShare[t] = logShare[t] - top - norm;
      share[t] /= total;
    }
    return leader;
  }

  function logExcess(margins) {
    const parts = new Float64Array(n), terms = new Float64Array(size);
    for (let i = 0; i < n; i++) {
      for (let k = 0; k < size; k++) terms[k] = -margins[i * size + k];
      const rest = softplus(logSum(terms));
      for (let k = 0; k < size; k++) terms[k] += logGaps[i][best[i]][others[i][k]] - rest;
      parts[i] = loss.logGap(scores[i][best[i]], logSum(terms));
    }
    return logSum(parts) - shift;
  }

  const pulled = new Float64Array(n * size), logs = new Float64Array(size), base = new Float64Array(n), tops = new Float64Array(n);

  /** dL/da for the others of a sample over e^base, relative to the token with most attention: no term cancels. Returns the score it reaches. */
  function pulls(margins, i) {
    const first = i * size, order = others[i];
    let low = 0, top = 0, leader = best[i], total = 0, delta = 0, high = 0;
    for (let k = 0; k < size; k++) {
      const logit = -margins[first + k];
      if (logit > top) { top = logit; leader = order[k]; }
      if (logit < low) low = logit;
    }
    if (!(top - low < HELD)) return deepPulls(margins, i);
    const gap = gaps[i][leader], reach = scores[i][leader];
    total = share[best[i]] = Math.exp(-top);
    for (let k = 0; k < size; k++) total += share[order[k]] = Math.exp(-margins[first + k] - top);
    for (let t = 0; t < T; t++) delta += gap[t] * (share[t] /= total);
    for (let k = 0; k < size; k++) {
      const t = order[k], pull = share[t] * (gap[t] - delta);
      pulled[first + k] = pull;
      if (Math.abs(pull) > high) high = Math.abs(pull);
    }
    base[i] = loss.logSlope(reach - delta);
    tops[i] = base[i] + Math.log(high);
    return reach - delta;
  }

  /** The same where attention is below what doubles hold: by logarithms and signs. */
  function deepPulls(margins, i) {
    const leader = attend(margins, i), gap = gaps[i][leader], logGap = logGaps[i][leader], first = i * size;
    let top = -Infinity, total = 0, high = -Infinity;
    for (let t = 0; t < T; t++) top = Math.max(top, logShare[t] + logGap[t]);
    const scale = Number.isFinite(top) ? top : 0;
    for (let t = 0; t < T; t++) total += Math.sign(gap[t]) * Math.exp(logShare[t] + logGap[t] - scale);
    const logDelta = total === 0 ? -Infinity : Math.log(Math.abs(total)) + scale, delta = Math.sign(total) * Math.exp(logDelta);
    const slope = loss.logSlope(scores[i][leader] - delta);
    for (let k = 0; k < size; k++) {
      const t = others[i][k], excess = gap[t] - delta;
      logs[k] = slope + logShare[t] + (gap[t] === 0 ? logDelta : Math.log(Math.abs(excess)));
      pulled[first + k] = gap[t] === 0 ? -Math.sign(total) : Math.sign(excess);
      if (logs[k] > high) high = logs[k];
    }
    for (let k = 0; k < size; k++) pulled[first + k] *= Math.exp(logs[k] - high);
    base[i] = tops[i] = high;
    return scores[i][leader] - delta;
  }

  const turned = Float64Array.from({ length: e * n }, (_, k) => asked[k % n][Math.floor(k / n)]); // the queries, sample by sample within a coordinate
  const folded = new Float64Array(d), pushed = new Float64Array(d * n), rows = apart.map((group) => Float64Array.from(group.flatMap((row) => [...row])));
  return {
    kind: "tokens", count: n * size, shape: [d, e], attained: false, tokens, scores, queries: asked, optimal: best,
    others, apart,
    margins(w, found = new Float64Array(n * size)) {
      for (let i = 0; i < n; i++) {
        const q = asked[i], row = rows[i];
        for (let a = 0, at = 0; a < d; a++) {
          let total = 0, other = 0, b = 1; // two sums: neither waits for the other
          for (; b < e; b += 2, at += 2) {
            total += w[at] * q[b - 1];
            other += w[at + 1] * q[b];
          }
          folded[a] = total + other + (e % 2 ? w[at++] * q[e - 1] : 0);
        }
        for (let k = 0, at = 0; k < size; k++) {
          let total = 0;
          for (let a = 0; a < d; a++, at++) total += row[at] * folded[a];
          found[i * size + k] = total;
        }
      }
      return found;
    },
    adjoint(c, found = new Float64Array(d * e)) {
      const push = pushed, turn = turned, samples = n, others = size; // names of its own, which the browser keeps in registers
      for (let i = 0, from = 0; i < samples; i++, from += others) {
        const row = rows[i];
        for (let a = 0, to = i; a < d; a++, to += samples) {
          let total = 0;
          for (let k = 0, at = a; k < others; k++, at += d) total += c[from + k] * row[at];
          push[to] = total;
        }
      }
      for (let a = 0, at = 0; a < d; a++) for (let b = 0, there = 0; b < e; b++, at++) {
        let total = 0;
        for (let i = 0, here = a * samples; i < samples; i++, here++, there++) total += push[here] * turn[there];
        found[at] = total;
      }
      return found;
    },
    weigh(margins, excess = true, weights = new Float64Array(n * size)) {
      for (let i = 0; i < n; i++) pulls(margins, i);
      let top = -Infinity;
      for (let i = 0; i < n; i++) if (tops[i] > top) top = tops[i];
      for (let i = 0, at = 0; i < n; i++) {
        const factor = tops[i] === -Infinity ? 0 : Math.exp(base[i] - top);
        for (let k = 0; k < size; k++, at++) weights[at] = factor * pulled[at];
      }
      return { logExcess: excess ? logExcess(margins) : NaN, logScale: top - shift, weights };
    },
    weightRates(margins, weighing) {
      return Array.from({ length: n * size }, (_, row) => {
        const i = Math.floor(row / size), found = new Float64Array(n * size);
        const reached = pulls(margins, i), rate = loss.logSlopeRate(reached), c = weighing.weights;
        for (let k = 0; k < size; k++) {
          const column = i * size + k, here = share[others[i][k]], moved = here * (scores[i][others[i][k]] - reached);
          const same = column === row ? c[row] : 0;
          found[column] = -(same - here * c[row] + rate * moved * c[row] - share[others[i][row % size]] * c[column]);
        }
        return found;
      });
    },
    ceiling: () => Infinity,
    /** What an ordinary program computes: softmax of the logits, and its gradient by the chain rule. */
    ordinary(w, round) {
      const gradient = new Float64Array(d * e);
      let value = 0, least = 0;
      for (let i = 0; i < n; i++) {
        const key = Float64Array.from({ length: d }, (_, a) => rounded(w.subarray(a * e, a * e + e), asked[i], round));
        const logits = tokens[i].map((x) => rounded(x, key, round)), top = Math.max(...logits);
        const up = logits.map((one) => round(Math.exp(round(one - top))));
        const total = up.reduce((sum, one) => round(sum + one), 0), soft = up.map((one) => round(one / total));
        const z = rounded(soft, scores[i], round), slope = round(round(loss.slope(z)) / n);
        value = round(value + round(loss.value(z) / n));
        least = round(least + round(loss.value(scores[i][best[i]]) / n));
        const seen = rounded(soft, scores[i].map((g) => round(slope * round(g))), round);
        soft.forEach((s, t) => {
          const push = round(s * round(round(slope * round(scores[i][t])) - seen));
          for (let a = 0; a < d; a++) for (let b = 0; b < e; b++)
            gradient[a * e + b] = round(gradient[a * e + b] + round(round(push * tokens[i][t][a]) * asked[i][b]));
        });
      }
      return { value: round(value - least), gradient };
    },
  };
}

/** Tokens with a diagonal weight: the margins are linear in a vector. */
function diagonalTokens(spec, loss) {
  const full = tokenSelection(spec, loss), d = full.shape[0];
  const rows = full.apart.flatMap((group, i) => group.map((x) => x.map((value, j) => value * full.queries[i][j])));
  const spread = (b) => Float64Array.from({ length: d * d }, (_, k) => (k % (d + 1) === 0 ? b[k / (d + 1)] : 0));
  return {
    ...full, rows, shape: [d],
    margins: (w) => multiply(rows, w),
    adjoint(c) {
      const found = new Float64Array(d);
      rows.forEach((row, k) => { for (let j = 0; j < d; j++) found[j] += c[k] * row[j]; });
      return found;
    },
    ordinary(w, round) {
      const { value, gradient } = full.ordinary(spread(w), round);
      return { value, gradient: Float64Array.from({ length: d }, (_, j) => gradient[j * (d + 1)]) };
    },
  };
}

function regression({ inputs, targets }) {
  const rows = inputs.map((x) => Float64Array.from(x)), n = rows.length, shift = Math.log(n);
  return {
    kind: "regression", rows, targets, count: n, shape: [inputs[0].length], attained: true,
    margins: (w) => multiply(rows, w),
    adjoint(c) {
      const found = new Float64Array(rows[0].length);
      for (let i = 0; i < n; i++) for (let j = 0; j < found.length; j++) found[j] += c[i] * rows[i][j];
      return found;
    },
    weigh(margins) {
      const gap = margins.map((m, i) => m - targets[i]), size = length(gap);
      const logSize = Math.log(size), safe = size > 0 ? size : 1;
      return { logExcess: 2 * logSize - Math.log(2) - shift, logScale: logSize - shift, weights: gap.map((g) => -g / safe) };
    },
    ceiling: (highest) => highest + 2 * Math.log(1e12),
    atRounding(margins) {
      const sizes = margins.map((m, i) => Math.abs(m) + Math.abs(targets[i])), gap = margins.map((m, i) => m - targets[i]);
      return length(gap) <= 8 * EPS * length(sizes);
    },
    ordinary(w, round) {
      const gap = rows.map((row, i) => round(rounded(row, w, round) - targets[i]));
      return { value: round(gap.reduce((sum, g) => round(sum + round(g * g)), 0) / (2 * n)), gradient: combine(rows, gap.map((g) => round(g / n)), round) };
    },
  };
}

function rounded(a, b, round) {
  let total = 0;
  for (let i = 0; i < a.length; i++) total = round(total + round(round(a[i]) * round(b[i])));
  return total;
}

function combine(rows, factors, round) {
  const found = new Float64Array(rows[0].length);
  rows.forEach((row, i) => { for (let j = 0; j < row.length; j++) found[j] = round(found[j] + round(factors[i] * row[j])); });
  return found;
}

// ---------------------------------------------------------------- models: parameters make a weight

/** `pull` turns a gradient in the weight into one in the parameters, `pullRate` is its derivative along a tangent. */
function model(name, shape, { widths = [], width = 0, depth = 2 } = {}) {
  const size = shape.reduce((a, b) => a * b, 1);
  if (name === "direct") {
    return { size, blocks: [[0, shape]], weight: (p) => p, pull: (p, g) => g, pullRate: (p) => new Float64Array(p.length) };
  }
  if (name === "hadamard") {
    const twice = (p, g) => Float64Array.from({ length: 2 * size }, (_, k) => g[k % size] * p[(k + size) % (2 * size)]);
    return {
      size: 2 * size, blocks: [[0, shape], [size, shape]],
      weight: (p) => Float64Array.from({ length: size }, (_, j) => p[j] * p[size + j]),
      pull: twice, pullRate: (p, v, g) => twice(v, g),
    };
  }
  if (name === "powers") {
    const sign = (k) => (k < size ? 1 : -1);
    return {
      size: 2 * size, blocks: [[0, shape], [size, shape]],
      weight: (p) => Float64Array.from({ length: size }, (_, j) => p[j] ** depth - p[size + j] ** depth),
      pull: (p, g) => p.map((x, k) => sign(k) * depth * x ** (depth - 1) * g[k % size]),
      pullRate: (p, v, g) => p.map((x, k) => sign(k) * depth * (depth - 1) * x ** (depth - 2) * v[k] * g[k % size]),
    };
  }
  if (name === "key-query") {
    const [d, e] = shape, r = width || Math.max(d, e), cut = d * r;
    const half = (p, g) => {
      const found = new Float64Array(p.length);
      for (let a = 0; a < d; a++) for (let b = 0; b < e; b++) for (let k = 0; k < r; k++) {
        found[a * r + k] += g[a * e + b] * p[cut + b * r + k];
        found[cut + b * r + k] += g[a * e + b] * p[a * r + k];
      }
      return found;
    };
    return {
      size: cut + e * r, blocks: [[0, [d, r]], [cut, [e, r]]],
      weight(p) {
        const found = new Float64Array(d * e);
        for (let a = 0; a < d; a++) for (let b = 0; b < e; b++) for (let k = 0; k < r; k++)
          found[a * e + b] += p[a * r + k] * p[cut + b * r + k];
        return found;
      },
      pull: half, pullRate: (p, v, g) => half(v, g),
    };
  }
  return deepLinear(shape[0], widths);
}

function deepLinear(inputs, widths) {
  const sizes = [inputs, ...widths, 1], blocks = [];
  let size = 0;
  for (let k = 1; k < sizes.length; k++) {
    blocks.push([size, [sizes[k], sizes[k - 1]]]);
    size += sizes[k] * sizes[k - 1];
  }
  const leftOf = (p, row, [at, [m, n]]) => {
    const found = new Float64Array(n);
    for (let i = 0; i < m; i++) for (let j = 0; j < n; j++) found[j] += row[i] * p[at + i * n + j];
    return found;
  };
  const rightOf = (p, column, [at, [m, n]]) => Float64Array.from({ length: m }, (_, i) => dot(p.subarray(at + i * n, at + i * n + n), column));
  const add = (a, b) => a.map((x, i) => x + b[i]);
  const outer = (found, [at, [m, n]], row, column) => {
    for (let i = 0; i < m; i++) for (let j = 0; j < n; j++) found[at + i * n + j] += row[i] * column[j];
  };
  const after = (p) => {
    const rows = [Float64Array.of(1)];
    for (let k = blocks.length - 1; k >= 0; k--) rows.unshift(leftOf(p, rows[0], blocks[k]));
    return rows;
  };
  return {
    size, blocks, weight: (p) => after(p)[0],
    pull(p, g) {
      const rows = after(p), found = new Float64Array(size);
      let before = g;
      blocks.forEach((block, k) => {
        outer(found, block, rows[k + 1], before);
        before = rightOf(p, before, block);
      });
      return found;
    },
    pullRate(p, v, g) {
      const rows = after(p), rates = [Float64Array.of(0)], found = new Float64Array(size);
      for (let k = blocks.length - 1; k >= 0; k--) rates.unshift(add(leftOf(p, rates[0], blocks[k]), leftOf(v, rows[k + 1], blocks[k])));
      let before = g, rate = new Float64Array(g.length);
      blocks.forEach((block, k) => {
        outer(found, block, rates[k + 1], before);
        outer(found, block, rows[k + 1], rate);
        rate = add(rightOf(v, before, block), rightOf(p, rate, block));
        before = rightOf(p, before, block);
      });
      return found;
    },
  };
}

const MODELS = {
  linear: ["direct", classification], "deep-linear": ["deep", classification], attention: ["direct", tokenSelection],
  "key-query": ["key-query", tokenSelection], diagonal: ["hadamard", diagonalTokens], "signed-squares": ["powers", regression],
};

/** A problem from its description: data, loss, model; `read` looks at a point. */
function problem(spec) {
  const [name, make] = MODELS[spec.setting], data = make(spec.data, LOSSES[spec.loss || "exponential"]);
  const net = model(name, data.shape, spec);
  /** A look at a point; `kept` holds arrays that may be written over. */
  function read(params, excess = true, kept = {}) {
    const margins = data.margins(net.weight(params), kept.margins), { logExcess, logScale, weights } = data.weigh(margins, excess, kept.weights);
    const slope = net.pull(params, data.adjoint(weights, kept.slope));
    for (let k = 0; k < slope.length; k++) slope[k] = -slope[k];
    const size = length(slope);
    return { params, margins, logExcess, logScale, weights, slope, size, logNorm: Math.log(size) };
  }
  const jacobian = (params) => Array.from({ length: data.count }, (_, k) => net.pull(params, data.adjoint(unit(data.count, k))));
  return { spec, data, net, read, jacobian };
}

const unit = (n, k) => { const found = new Float64Array(n); found[k] = 1; return found; };

function smallest(margins) {
  let found = Infinity;
  for (let k = 0; k < margins.length; k++) if (margins[k] < found) found = margins[k];
  return found;
}

function largest(margins) {
  let found = 0;
  for (let k = 0; k < margins.length; k++) if (Math.abs(margins[k]) > found) found = Math.abs(margins[k]);
  return found;
}

// ---------------------------------------------------------------- optimisers with steps

const COORDINATEWISE = { sign: true, adam: true };

/** One move: what is subtracted from the parameters, the factor on the slope, and on the multipliers; some take the slope itself for the step. */
const MOVES = {
  gd: (r, size) => along(r.slope, Math.exp(Math.log(size) + r.logScale)),
  ngd: (r, size) => along(r.slope, size / Math.exp(r.logNorm)),
  polyak: (r, size) => ({ ...along(r.slope, Math.exp(r.logExcess - r.logScale) / (size * Math.exp(r.logNorm) ** 2)), diverging: r.logScale + r.logNorm - r.logExcess < Math.log(1e-6) }),
  sign(r, size) {
    const total = r.slope.reduce((sum, g) => sum + Math.abs(g), 0), factor = size / total;
    return { step: r.slope.map((g) => factor * (total * Math.sign(g))), factor };
  },
  adam(r, size, memory, count) {
    const b1 = 0.9, b2 = 0.999, unitOf = (old) => Math.exp(old - r.logScale);
    if (!memory.mean) Object.assign(memory, { mean: new Float64Array(r.slope.length), square: new Float64Array(r.slope.length), at: NaN });
    const u = Number.isNaN(memory.at) ? 0 : unitOf(memory.at), u2 = u ** 2;
    const tilt = 1 - b1 ** (count + 1), spread = 1 - b2 ** (count + 1);
    memory.mean = memory.mean.map((m, k) => b1 * u * m + (1 - b1) * r.slope[k]);
    memory.square = memory.square.map((v, k) => b2 * u2 * v + (1 - b2) * (r.slope[k] * r.slope[k]));
    memory.at = r.logScale;
    const step = memory.mean.map((m, k) => (memory.square[k] === 0 ? 0 : (size * (m / tilt)) / Math.sqrt(memory.square[k] / spread)));
    return { step, factor: size };
  },
  muon(r, size, memory, count, net) {
    const beta = 0.95;
    if (!memory.mean) Object.assign(memory, { mean: new Float64Array(r.slope.length), pull: new Float64Array(r.weights.length), at: NaN });
    const u = Number.isNaN(memory.at) ? 0 : Math.exp(memory.at - r.logScale);
    memory.mean = memory.mean.map((m, k) => beta * u * m + (1 - beta) * r.slope[k]);
    memory.pull = memory.pull.map((m, k) => beta * u * m + (1 - beta) * -r.weights[k]);
    memory.at = r.logScale;
    let trace = 0;
    const step = new Float64Array(r.slope.length);
    for (const [at, shape] of net.blocks) {
      if (shape.length === 2) {
        const { values, polar } = singular(memory.mean, at, ...shape);
        trace += values.reduce((a, b) => a + b, 0);
        step.set(polar, at);
      } else {
        const part = memory.mean.subarray(at, at + shape[0]), size = length(part);
        trace += size;
        step.set(part.map((x) => x / size), at);
      }
    }
    const factor = size / trace;
    return { step: step.map((x) => factor * (trace * x)), factor, pull: memory.pull };
  },
};

function along(step, factor) {
  for (let k = 0; k < step.length; k++) step[k] *= factor;
  return { step, factor };
}

/** About `points` steps, evenly spaced in their logarithm, with 0 and the last one. */
function schedule(steps, points) {
  const found = new Set([0, steps]);
  for (let k = 0; k < points; k++) found.add(even(10 ** ((Math.log10(steps) * k) / (points - 1))));
  return [...found].sort((a, b) => a - b);
}

function even(x) { // rounds halves to even, as NumPy does
  const floor = Math.floor(x), rest = x - floor;
  return rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? floor + 1 : floor;
}

function view(at, steps, logTime, params, dual) {
  const r = at.read(params);
  return {
    steps, logTime, logExcess: r.logExcess, logSlope: r.logNorm + (r.logScale - r.logExcess), norm: length(params),
    margins: Array.from(r.margins), weights: Array.from(r.weights), weight: Array.from(at.net.weight(params)), dual: Array.from(dual),
  };
}

function descend(at, params, { optimiser, size, steps, margin = Infinity, points = 100 }, tell) {
  const { data, net } = at, move = MOVES[optimiser], memory = {}, records = [], lastly = schedule(steps, points);
  const first = at.read(params), zero = data.weigh(new Float64Array(data.count)).logExcess;
  const reach = Math.exp(-(first.logNorm + first.logScale - first.logExcess)), ceiling = data.ceiling(Math.max(first.logExcess, zero));
  const kept = { margins: new Float64Array(data.count), weights: new Float64Array(data.count), slope: new Float64Array(data.shape.reduce((a, b) => a * b, 1)) };
  const full = optimiser === "polyak" || data.kind !== "tokens"; // elsewhere the loss itself is not needed at every step
  let dual = new Float64Array(data.count), logTime = -Infinity, count = 0, status = "out_of_steps";
  params = Float64Array.from(params);
  for (const target of lastly) {
    while (count < target && status === "out_of_steps") {
      const r = at.read(params, full, kept), norm = length(params);
      const { step, factor, diverging, pull } = move(r, size, memory, count, net), square = dot(step, step);
      const still = !(square > EPS * norm * norm) || !data.attained;
      const unresolved = !data.attained && EPS * largest(r.margins) > RESOLUTION;
      if (!data.attained && smallest(r.margins) >= margin) status = "reached_target";
      else if (data.attained && data.atRounding(r.margins) && still) status = "settled";
      else if (r.size === 0 && still) status = "zero_gradient";
      else if (r.logExcess > ceiling && (unresolved || data.attained)) status = "diverging_step";
      else if (unresolved) status = "resolution_exhausted";
      else if (COORDINATEWISE[optimiser] && !data.attained && r.weights.some((w) => w === 0)) status = "coordinate_underflow";
      else if (diverging || square > (1e6 * Math.max(reach, norm)) ** 2) status = "diverging_step";
      else if (!Number.isFinite(square)) status = "not_finite";
      if (status !== "out_of_steps") break;
      for (let k = 0; k < step.length; k++) params[k] -= step[k];
      const pulled = pull || r.weights, scale = pull ? -factor : factor;
      for (let k = 0; k < dual.length; k++) dual[k] += scale * pulled[k];
      logTime = logAddExp(logTime, Math.log(factor) - r.logScale);
      count++;
    }
    if (!records.length || count > records[records.length - 1].steps) records.push(view(at, count, logTime, params, dual));
    if (tell) tell(count / steps);
    if (status !== "out_of_steps") break;
  }
  return { records, status };
}

// ---------------------------------------------------------------- the flow: extrapolated linearly implicit Euler in margin space

const FLOW = { tolerance: 1e-7, marginTolerance: 1e-4, shrink: 0.2, grow: 4, safety: 0.9, first: 1e4, stationary: 1e-6, smallest: 1e-14, exact: 1e-13, still: 1e-3, gross: 1e4, deaf: 4, brink: 1e-2, tail: 10, heard: 40 };
const VALUE = [-1 / 6, 4, -13.5, 32 / 3], ERROR = [-1 / 6, 2, -4.5, 8 / 3]; // of 1, 2, 3 and 4 substeps in the extrapolated value, and in what that adds to one without the first

const transposed = (rows, z) => {
  const found = new Float64Array(rows[0].length);
  rows.forEach((row, k) => { for (let j = 0; j < found.length; j++) found[j] += z[k] * row[j]; });
  return found;
};
const plus = (x, y, a = 1) => x.map((value, k) => value + a * y[k]);

/** What the clocks need to know of a point: the clock moves the logarithm of the norm, and time is an integral over it, or over -log(L - L*). */
function pace(at, params, reach, clock) {
  const r = at.read(params), norm = length(params), speed = norm + reach, rows = at.jacobian(params);
  const tangent = r.slope.map((g) => -(speed / r.size) * g), rates = at.data.weightRates(r.margins, r);
  const turned = multiply(rates, multiply(rows, tangent)).map((w) => -w);
  const change = plus(transposed(rows, turned), at.net.pullRate(params, tangent, at.data.adjoint(r.weights.map((w) => -w))));
  const rate = dot(r.slope, change) / (r.size * r.size), steep = r.logNorm + (r.logScale - r.logExcess), fall = speed * Math.exp(steep);
  const speedRate = norm > 0 ? dot(tangent, params) / norm : speed;
  return {
    r, rows, rates, norm, speed, steep, logGradient: r.logScale + r.logNorm,
    curves: [
      { x: clock, own: Math.log(speed), slope: speedRate / speed - rate },
      { x: -r.logExcess, own: -steep, slope: -(2 * rate + fall) / fall },
    ],
  };
}

const LEGENDRE = Array.from({ length: 24 }, (_, k) => { // nodes and weights of Gauss on [0, 1], by Newton
  let x = Math.cos((Math.PI * (k + 0.75)) / 24.5), rate = 0;
  for (let turn = 0; turn < 8; turn++) {
    let [before, now] = [1, x];
    for (let n = 2; n <= 24; n++) [before, now] = [now, ((2 * n - 1) * x * now - (n - 1) * before) / n];
    rate = (24 * (x * now - before)) / (x * x - 1);
    x -= now / rate;
  }
  return [(1 + x) / 2, 1 / ((1 - x * x) * rate * rate)];
});

/** The integral of an integrand that is smooth in its logarithm, and its error: polynomials of degree 2 to 5 through both ends and an earlier point. */
function integral(begin, end, earlier, rises, past) {
  const width = end.x - begin.x, low = begin.own - end.own - rises, first = width * begin.slope, last = width * end.slope, bent = first + 2 * low + last;
  const place = (earlier.x - begin.x) / width, seen = place > -10 && place < -0.1, at = seen ? place : -1;
  const cubic = (u) => ((low + last) * (1 - u) - last) * (1 - u) + bent * u * (1 - u) ** 2, bump = (u) => (u * (1 - u)) ** 2;
  const slope = last - 2 * (low + last) * (1 - at) + bent * (1 - at) * (1 - 3 * at), height = (earlier.own - end.own - past - cubic(at)) / bump(at);
  const tilt = (width * earlier.slope - slope - height * 2 * at * (1 - at) * (1 - 2 * at)) / bump(at), part = Math.min(1, FLOW.heard / Math.abs(low));
  const sums = [0, 0, 0, 0];
  for (const [node, weight] of LEGENDRE) {
    const u = 1 - part * node, parabola = ((low + last) * (1 - u) - last) * (1 - u), quartic = cubic(u) + height * bump(u);
    [parabola, cubic(u), quartic, quartic + tilt * bump(u) * (u - at)].forEach((power, k) => { sums[k] += width * part * weight * Math.exp(power); });
  }
  const [rough, plain, finer, finest] = sums.map((sum) => Math.exp(end.own) * sum), miss = Math.abs(plain - rough), less = Math.abs(finest - finer);
  const [found, error] = seen && less < miss ? [finest, less] : [plain, miss], rounding = 16 * EPS * Math.abs(end.x) * Math.exp(end.own + Math.max(low, 0));
  return width > 0 && Number.isFinite(found) && Number.isFinite(error) ? [found, error + rounding] : [0, Infinity];
}

/** p = t |grad L| at the end of a step by both integrals, which have to agree, and its error. */
function advanceTime(progress, before, after, earlier) {
  const rises = before.logGradient - after.logGradient, past = earlier.logGradient - after.logGradient;
  const [[one, miss], [other, less]] = [0, 1].map((k) => integral(before.curves[k], after.curves[k], earlier.curves[k], rises, past));
  const apart = Math.abs(one - other);
  return [progress * Math.exp(-rises) + (less < miss ? other : one), apart <= miss + less ? Math.min(miss, less) : apart];
}

function progressed(progress, arc, change) {
  const quotient = Math.abs(change) < 1e-6 ? 1 + change / 2 + change ** 2 / 6 : Math.expm1(change) / change;
  return progress * Math.exp(change) + arc * quotient;
}

/** The linearisation at the start of a step, in margin space. */
function freeze({ r, rows, rates, speed }) {
  const direction = r.slope.map((g) => g / r.size), heading = multiply(rows, direction);
  const gram = rows.map((a, i) => Float64Array.from(rows, (b, j) => dot(a, b) - heading[i] * heading[j]));
  const curvature = rates.map((row) => row.map((x) => -x)), w = r.weights, square = dot(w, w);
  const sums = transposed(curvature, w.map((x) => x / square)); // multiples of the weights drop out of the projection
  curvature.forEach((row, i) => { for (let j = 0; j < row.length; j++) row[j] -= w[i] * sums[j]; });
  const product = curvature.map((row) => transposed(gram, row));
  return { rows, direction, heading, curvature, product, unitWeights: w.map((x) => x / r.size), stiffness: speed / r.size };
}

function solver(frozen, h) {
  const inverse = 1 / (h * frozen.stiffness);
  const solve = factorise(frozen.product.map((row, i) => row.map((x, j) => x + (i === j ? inverse : 0))));
  return (b) => {
    const z = solve(multiply(frozen.curvature, multiply(frozen.rows, b))), along = dot(frozen.heading, z);
    const correction = plus(transposed(frozen.rows, z), frozen.direction, -along);
    return [plus(b, correction, -1), z.map((x, k) => -x - along * frozen.unitWeights[k])];
  };
}

function substeps(at, state, frozen, first, reach, h, count) {
  const solve = solver(frozen, h / count);
  let params = new Float64Array(state.params.length), dual = new Float64Array(state.dual.length), progress = state.progress, r = first;
  for (let k = 0; k < count; k++) {
    const speed = length(r.params) + reach, factor = (-(h / count) * speed) / r.size;
    const [step, corrected] = solve(r.slope.map((g) => factor * g)), weights = r.weights;
    params = plus(params, step);
    const after = at.read(plus(state.params, params));
    progress = progressed(progress, (speed * h) / count, after.logScale + after.logNorm - (r.logScale + r.logNorm));
    dual = dual.map((x, j) => x - factor * weights[j] + corrected[j]);
    r = after;
  }
  return { params, progress, dual };
}

function extrapolate(columns) {
  const sum = (factors, name) => columns[0][name].map((_, k) => columns.reduce((total, one, j) => total + factors[j] * one[name][k], 0));
  const time = (factors) => columns.reduce((total, one, j) => total + factors[j] * one.progress, 0);
  return [{ params: sum(VALUE, "params"), dual: sum(VALUE, "dual"), progress: time(VALUE) }, { params: sum(ERROR, "params"), progress: time(ERROR) }];
}

/** One step of length h, its error relative to the tolerances, and what is `left` of the terms of the slope, which cancel at a minimum. */
function attempt(at, here, reach, floor, h) {
  const { pace: begin, params } = here, { r } = begin, frozen = freeze(begin), columns = [];
  for (let count = 1; count <= VALUE.length; count++) columns.push(substeps(at, here, frozen, r, reach, h, count));
  const [gained, error] = extrapolate(columns), moved = plus(gained.params, here.rest), there = plus(params, moved), clock = here.clock + h;
  const rest = moved.map((x, k) => x - (there[k] - params[k])), end = pace(at, there, reach, clock), seen = end.r;
  let [progress, miss] = advanceTime(here.progress, begin, end, here.earlier);
  if (Math.abs(gained.progress - progress) <= miss && Math.abs(error.progress) < miss) [progress, miss] = [gained.progress, error.progress];
  const shift = multiply(end.rows, error.params), total = seen.weights.reduce((sum, w) => sum + Math.abs(w), 0), shares = seen.weights.map((w) => Math.abs(w) / total);
  const mean = dot(shares, shift), spread = Math.sqrt(shares.reduce((sum, s, k) => sum + s * (shift[k] - mean) ** 2, 0)), rounding = 64 * EPS * largest(seen.margins);
  const left = r.size / r.weights.reduce((sum, w, k) => sum + Math.abs(w) * length(begin.rows[k]), 0);
  const parts = [
    length(error.params) / (FLOW.tolerance * Math.max(end.norm, floor)),
    spread / (FLOW.marginTolerance * (smallest(seen.margins) > 0 ? 1 : left) + rounding),
    Math.abs(miss) / ((FLOW.tolerance + rounding / left ** 2) * Math.abs(progress)),
  ];
  const next = { params: there, rest, progress, dual: plus(here.dual, gained.dual), clock, pace: end, earlier: begin };
  const finite = [seen.logExcess, end.norm, progress, ...seen.margins].every(Number.isFinite);
  return { next, left, finite, error: dot(seen.slope, r.slope) < 0 ? Infinity : Math.max(...parts) }; // against the motion it began with: across a minimum
}

/** The length tried next between two on both sides of a level, each with how far it leads beyond: a secant, and at last the far side. */
function between([[a, before], [b, after]], h) {
  const low = Math.min(a, b), high = Math.max(a, b), width = FLOW.exact * h;
  return high - low <= width ? high : Math.min(high - width / 2, Math.max(low + width / 2, b - (after * (b - a)) / (after - before)));
}

function flow(at, params, { margin = 1e6, steps = 20000 }, tell) {
  const first = at.read(params), begun = length(params), beyond = (r) => (smallest(r.margins) - margin) / Math.max(1, margin);
  const reach = Math.min(Math.exp(-(first.logNorm + (first.logScale - first.logExcess))), 1e3 * Math.exp(-first.logNorm)), floor = begun > 0 ? begun : reach;
  const none = { logGradient: 0, curves: [0, 1].map(() => ({ x: 0, own: 0, slope: 0 })) };
  const start = { params: Float64Array.from(params), rest: new Float64Array(params.length), progress: 0, dual: new Float64Array(at.data.count), clock: 0, earlier: none };
  let here = { ...start, pace: pace(at, start.params, reach, 0) }, h = 1e-3, count = 0, status = "running", ends = null, deaf = 0, last = Infinity;
  const records = [view(at, 0, -Infinity, here.params, here.dual)];
  if (!Number.isFinite(first.logNorm)) return { records, status: "zero_gradient" };
  if (beyond(first) >= 0) return { records, status: "reached_target" };
  while (h * here.pace.speed > FLOW.first * floor) h *= FLOW.shrink;
  while (status === "running") {
    const used = ends ? between(ends, h) : h, { next, left, finite, error } = attempt(at, here, reach, floor, used);
    if (!ends && !(error <= 1 && finite)) {
      h *= Number.isFinite(error) && error > 1 ? Math.max(FLOW.shrink, FLOW.safety * error ** -0.25) : FLOW.shrink;
      deaf = Number.isFinite(error) && error > last ? deaf + 1 : 0;
      last = error;
      status = stuck(here.pace, h, floor, left, error, deaf);
      continue;
    }
    const far = finite ? beyond(next.pace.r) : -1e3, landed = far >= 0 && (far <= 4 * EPS || (ends && Math.abs(ends[0][0] - ends[1][0]) <= FLOW.exact * h));
    if (!landed && (ends || far >= 0)) { // on the way to the level: an end that stays counts less
      const now = [used, far - 2 * EPS], latest = ends?.[1];
      const older = !ends ? [0, beyond(here.pace.r)] : latest[1] * now[1] < 0 ? latest : [ends[0][0], (ends[0][1] * latest[1]) / (latest[1] + now[1])];
      ends = [older, now];
      continue;
    }
    [here, ends, deaf, last] = [next, null, 0, Infinity];
    count++;
    const { r } = here.pace;
    if (landed) status = "reached_target";
    else if (EPS * largest(r.margins) > RESOLUTION) status = "resolution_exhausted";
    else if (count >= steps) status = "out_of_steps";
    else h *= Math.min(FLOW.grow, Math.max(FLOW.shrink, FLOW.safety * Math.max(error, 1e-8) ** -0.25));
    records.push(view(at, count, here.progress > 0 ? Math.log(here.progress) - here.pace.logGradient : -Infinity, here.params, here.dual));
    if (tell) tell(Math.min(0.99, Math.log1p(Math.max(0, smallest(r.margins))) / Math.log1p(margin)));
  }
  return { records, status };
}

/** Why a flow whose step was refused cannot go on. An error that grows as steps get shorter is rounding, and so is a gross one of a tiny step. */
function stuck({ r, norm, speed, steep }, h, floor, left, error, deaf) {
  const size = Math.max(norm, floor), moved = h * speed, margin = smallest(r.margins), rounding = EPS * r.margins.length;
  const lost = left * FLOW.tolerance <= rounding && left < FLOW.stationary && margin <= 0, tiny = h < FLOW.smallest && moved < FLOW.smallest * size;
  const loud = (deaf >= FLOW.deaf && moved < FLOW.brink * size) || (Number.isFinite(error) && error > FLOW.gross && FLOW.gross * moved < size);
  if (left <= rounding || (lost && Math.exp(steep) * size < FLOW.still)) return "settled";
  if (lost || (loud && margin > FLOW.tail)) return "resolution_exhausted";
  return !tiny ? "running" : left < FLOW.stationary ? "settled" : "step_failed";
}

// ---------------------------------------------------------------- the flow on regressions, in its n dual variables and in log t

/** theta = 2 alpha^2 sinh(X' nu): the flow of w+^2 - w-^2, whose limit is where theta fits the targets. */
function mirror(at, params, { alpha }, tell) {
  const { rows, targets, count: n } = at.data, d = rows[0].length, records = [];
  const link = (s) => s.map((x) => 2 * alpha * alpha * Math.sinh(x)), theta = (nu) => link(transposed(rows, nu));
  const residual = (nu) => multiply(rows, theta(nu)).map((x, i) => x - targets[i]);
  const slopes = (nu) => {
    const curve = transposed(rows, nu).map((x) => 2 * alpha * alpha * Math.cosh(x));
    return rows.map((a) => Float64Array.from(rows, (b) => a.reduce((sum, x, j) => sum + x * b[j] * curve[j], 0)));
  };
  const speed = 4 / n, keep = (steps, logTime, nu) => {
    const s = transposed(rows, nu), weight = theta(nu), gap = residual(nu);
    const point = Float64Array.from({ length: 2 * d }, (_, k) => alpha * Math.exp((k < d ? s[k] : -s[k - d]) / 2));
    records.push({
      steps, logTime, logExcess: 2 * Math.log(length(gap)) - Math.log(2 * n), logSlope: NaN, norm: length(point),
      margins: Array.from(multiply(rows, weight)), weights: Array.from(gap, (x) => -x), weight: Array.from(weight), dual: Array.from(nu),
    });
  };
  let nu = new Float64Array(n), x = Math.log(1e-6 / (speed * Math.max(...residual(nu).map(Math.abs)) * Math.max(...rows.map(length)))), h = 0.1, status = "out_of_steps";
  keep(0, -Infinity, nu);
  for (let steps = 1; steps < 5000; steps++) {
    const jacobian = slopes(nu);
    const column = (count) => {
      let moved = nu;
      for (let k = 0; k < count; k++) {
        const pace = speed * Math.exp(x + (k + 1) * (h / count)) * (h / count);
        const solve = factorise(jacobian.map((row, i) => row.map((value, j) => pace * value + (i === j ? 1 : 0))));
        moved = plus(moved, solve(residual(moved)), -pace);
      }
      return { params: moved, dual: moved, progress: 0 };
    };
    const [value, error] = extrapolate([1, 2, 3, 4].map(column)), size = length(error.params) / (1e-8 * (1e-3 + length(value.params)));
    if (size <= 1) {
      x += h;
      nu = value.params;
      keep(steps, x, nu);
      if (length(residual(nu)) <= 1e-9 * length(Float64Array.from(targets))) { status = "settled"; break; }
    }
    h = Math.min(0.5, h * Math.min(4, Math.max(0.2, 0.9 * Math.max(size, 1e-8) ** -0.25)));
    if (tell) tell(Math.min(0.99, steps / 600));
  }
  for (let k = 0; k < 30; k++) nu = plus(nu, factorise(slopes(nu))(residual(nu)), -1); // the limit itself
  keep(records.length, x + 10, nu);
  return { records, status };
}

// ---------------------------------------------------------------- ordinary arithmetic, for comparison

/** The same run as an ordinary program computes it, in doubles or in single precision, until its direction is noise. */
function ordinary(at, params, options, bits) {
  const round = bits === 32 ? Math.fround : (x) => x, { data, net } = at, records = [], memory = {};
  const lastly = new Set(schedule(options.steps || 20000, 100)), flowing = options.optimiser === "flow";
  let died = null, count = 0;
  params = Float64Array.from(params, round);
  for (; !died && count <= (options.steps || 20000); count++) {
    const { value, gradient } = data.ordinary(net.weight(params), round), slope = net.pull(params, gradient).map(round);
    const size = round(Math.sqrt(slope.reduce((sum, g) => round(sum + round(g * g)), 0))), exact = at.read(params);
    const here = length(slope), miss = here > 0 ? length(slope.map((g, k) => g / here - exact.slope[k] / exact.size)) : 1;
    if (lastly.has(count) || miss >= 1) records.push({ ...view(at, count, NaN, params, exact.weights), miss });
    const margin = smallest(exact.margins);
    if (!data.attained && !(miss < 1)) died = { margin, steps: count, why: here > 0 ? "its gradient is rounding noise" : "its gradient is exactly 0" };
    else if (!(size > 0)) died = data.attained ? null : { margin, steps: count, why: "the square of its gradient underflows, and dividing by 0 gives no direction" };
    if (died || !(size > 0) || margin >= (options.margin || Infinity)) break;
    const norm = length(params), stride = options.size, fake = { slope, size, logNorm: Math.log(size), logScale: 0, logExcess: Math.log(value), weights: exact.weights };
    const factor = flowing ? (0.02 * (norm + 1)) / size : 0;
    const step = flowing ? slope.map((g) => factor * g) : MOVES[options.optimiser](fake, stride, memory, count, net).step;
    if (!step.every(Number.isFinite)) { died = { margin, steps: count, why: "a step is not a number" }; break; }
    params = params.map((p, k) => round(p - round(step[k])));
  }
  return { records, died, status: died ? "died" : "out_of_steps" };
}

// ---------------------------------------------------------------- references and certificates

/** min |w| with rows w >= 1: nonnegative multipliers by an active set, exact up to rounding; null where no direction separates.
 *
 * As Lawson and Hanson do it: rows with a one appended come nearest to the last unit vector, and active ones never depend on each other.
 */
function maxMargin(rows) {
  const n = rows.length, scale = Math.max(...rows.map(length)) ** 2 || 1, gram = rows.map((a) => Float64Array.from(rows, (b) => 1 + dot(a, b) / scale)), active = [];
  let lam = new Float64Array(n);
  const pull = () => multiply(gram, lam);
  for (let round = 0; round < 20 * n; round++) {
    const slack = pull().map((m) => 1 - m), free = [...slack.keys()].filter((k) => !active.includes(k));
    const worst = free.reduce((a, b) => (a < 0 || slack[b] > slack[a] ? b : a), -1);
    if (worst < 0 || slack[worst] <= 1e-12) break;
    active.push(worst);
    for (;;) {
      const solved = factorise(active.map((i) => active.map((j) => gram[i][j])))(active.map(() => 1));
      if (!solved.every(Number.isFinite)) return null;
      const low = active.map((i, k) => (solved[k] <= 0 ? lam[i] / (lam[i] - solved[k]) : 1)), share = Math.min(...low);
      active.forEach((i, k) => (lam[i] += share * (solved[k] - lam[i])));
      if (share >= 1) break;
      const gone = active.filter((i, k) => low[k] <= share || lam[i] <= 0);
      gone.forEach((i) => { lam[i] = 0; active.splice(active.indexOf(i), 1); });
      if (!active.length) return null;
    }
  }
  const weight = transposed(rows, lam), least = smallest(multiply(rows, weight));
  return least > 0 && 1 - lam.reduce((a, b) => a + b) > 1e-12 ? { weight: weight.map((x) => x / least), dual: lam, value: length(weight) / least } : null;
}

/** min cost' x with A x >= 1, x >= 0, cost >= 0: the dual simplex on a dense tableau, in which the row that fails most leaves; null where there is none. */
function leastCost(cost, rows, bounds) {
  const m = rows.length, n = cost.length, table = rows.map((row, i) => Float64Array.from([...row.map((x) => -x), ...unit(m, i), -bounds[i]]));
  const price = Float64Array.from([...cost, ...new Float64Array(m), 0]), basis = rows.map((_, i) => n + i);
  for (let round = 0; round < 2000; round++) {
    const out = table.reduce((worst, row, i) => (row[n + m] < table[worst][n + m] ? i : worst), 0);
    if (table[out][n + m] >= -1e-11) {
      const x = new Float64Array(n);
      basis.forEach((b, i) => { if (b < n) x[b] = table[i][n + m]; });
      return { x, multipliers: Float64Array.from(rows, (_, i) => price[n + i]) };
    }
    let into = -1;
    for (let j = 0; j < n + m; j++) {
      if (!(table[out][j] < -1e-9)) continue;
      const lead = into < 0 ? -1 : price[j] / -table[out][j] - price[into] / -table[out][into];
      if (lead < -1e-12 || (lead <= 1e-12 && table[out][j] < table[out][into])) into = j; // of equal prices the larger pivot
    }
    if (into < 0) return null;
    const pivot = table[out][into];
    table[out] = table[out].map((x) => x / pivot);
    for (const row of [...table.filter((_, i) => i !== out), price]) {
      const factor = row[into];
      if (factor !== 0) for (let j = 0; j < row.length; j++) row[j] -= factor * table[out][j];
    }
    basis[out] = into;
  }
  return null;
}

/** The largest margin in the l1 or linf norm of a vector. */
function polyhedralMargin(rows, norm) {
  const d = rows[0].length, two = rows.map((row) => [...row, ...row.map((x) => -x)]), ones = rows.map(() => 1);
  let found;
  if (norm === "l1") found = leastCost(new Float64Array(2 * d).fill(1), two, ones);
  else {
    const caps = Array.from({ length: 2 * d }, (_, k) => [...unit(2 * d, k).map((x) => -x), 1]); // t - u_k >= 0
    found = leastCost([...new Float64Array(2 * d), 1], [...two.map((row) => [...row, 0]), ...caps], [...ones, ...new Float64Array(2 * d)]);
  }
  if (!found) return null;
  const weight = Float64Array.from({ length: d }, (_, j) => found.x[j] - found.x[d + j]);
  return { weight, dual: found.multipliers.slice(0, rows.length), value: NORMS[norm].value(weight, [d]) };
}

const NORMS = {
  l2: { value: length, dual: length },
  l1: { value: (w) => w.reduce((sum, x) => sum + Math.abs(x), 0), dual: (w) => w.reduce((a, x) => Math.max(a, Math.abs(x)), 0) },
  linf: { value: (w) => NORMS.l1.dual(w), dual: (w) => NORMS.l1.value(w) },
  nuclear: { value: (w, s) => singular(w, 0, ...s).values.reduce((a, b) => a + b, 0), dual: (w, s) => Math.max(...singular(w, 0, ...s).values) },
  spectral: { value: (w, s) => NORMS.nuclear.dual(w, s), dual: (w, s) => NORMS.nuclear.value(w, s) },
};

/** Bounds on the least norm with all margins at least 1, from a weight and multipliers: weak duality. */
function bracket(data, weight, dual, norm) {
  const { value, dual: reach } = NORMS[norm], shape = data.shape, least = smallest(data.margins(Float64Array.from(weight)));
  const kept = Float64Array.from(dual, (x) => Math.max(x, 0)), mass = kept.reduce((a, b) => a + b, 0), pull = data.adjoint(kept);
  return { lower: mass > 0 ? mass / reach(pull, shape) : 0, upper: least > 0 ? value(Float64Array.from(weight), shape) / least : Infinity };
}

/** What theory says is selected here, and its rivals, by norm: the weights of least norm with margins at least 1, or that fit. */
function references(at) {
  const { data, spec } = at, rows = data.rows || Array.from({ length: data.count }, (_, k) => data.adjoint(unit(data.count, k)));
  if (data.attained) {
    const dual = factorise(rows.map((a) => rows.map((b) => dot(a, b))))(data.targets);
    return { l2: { weight: transposed(rows, dual), value: length(transposed(rows, dual)) }, l1: leastFit(rows, data.targets) };
  }
  const found = { l2: maxMargin(rows) };
  if (data.shape.length === 1 && rows.length * rows[0].length < 4000) for (const norm of ["l1", "linf"]) found[norm] = polyhedralMargin(rows, norm);
  return found;
}

/** The weight of least l1 norm that fits. */
function leastFit(rows, targets) {
  const d = rows[0].length, signed = rows.map((row, i) => ({ row: targets[i] < 0 ? row.map((x) => -x) : row, y: Math.abs(targets[i]) }));
  const table = signed.flatMap(({ row }) => [[...row, ...row.map((x) => -x)], [...row.map((x) => -x), ...row]]);
  const found = leastCost(new Float64Array(2 * d).fill(1), table, signed.flatMap(({ y }) => [y, -y]));
  if (!found) return null;
  const weight = Float64Array.from({ length: d }, (_, j) => found.x[j] - found.x[d + j]);
  return { weight, value: NORMS.l1.value(weight) };
}

/** Which norm theory says this training minimises. */
function predicted({ setting, optimiser }) {
  if (setting === "signed-squares") return "Q_alpha";
  if (setting === "key-query") return "nuclear";
  if (setting === "diagonal") return "l1";
  if (optimiser === "sign" || optimiser === "adam") return "linf";
  if (optimiser === "muon") return setting === "linear" ? "l2" : "spectral";
  return "l2";
}

/** 1 - corr to a direction, as half the squared distance of unit vectors. */
function misalignment(a, b) {
  const one = length(a), two = length(b);
  let total = 0;
  for (let k = 0; k < a.length; k++) total += (a[k] / one - b[k] / two) ** 2;
  return total / 2;
}

/** A run from its description. */
function run(spec, tell) {
  const at = problem(spec), params = Float64Array.from(spec.start);
  if (spec.arithmetic && spec.arithmetic !== "log") return ordinary(at, params, spec, spec.arithmetic === "float32" ? 32 : 64);
  if (spec.optimiser !== "flow") return descend(at, params, spec, tell);
  return at.data.attained ? mirror(at, params, spec, tell) : flow(at, params, spec, tell);
}

/** A run with everything that is drawn of it: references, rivals, directions and certificates. */
function study(spec, tell) {
  const at = problem(spec), { data } = at, plain = spec.arithmetic && spec.arithmetic !== "log" ? run(spec) : null;
  const found = run({ ...spec, arithmetic: "log" }, tell), refs = references(at), norm = predicted(spec);
  if (data.attained) refs.Q_alpha = { weight: mirror(at, null, { alpha: spec.alpha }).records.at(-1).weight };
  const curves = {}, gathered = new Float64Array(data.count);
  const pair = (one, k, all) => { // parameters that multiply grow as they go: what they gather early counts by the weight that it makes
    const before = k ? all[k - 1].dual : gathered, share = one.norm > 0 ? length(one.weight) / one.norm : 1;
    for (let j = 0; j < gathered.length; j++) gathered[j] += share * (one.dual[j] - before[j]);
    return data.attained ? null : bracket(data, one.weight, gathered, norm);
  };
  for (const [name, one] of Object.entries(refs)) {
    if (one) curves[name] = found.records.map((record) => (record.norm > 0 ? misalignment(record.weight, one.weight) : NaN));
  }
  const brackets = found.records.map(pair);
  const shown = Object.fromEntries(Object.entries(refs).filter(([, one]) => one).map(([name, one]) => [name, { value: one.value, weight: Array.from(one.weight) }]));
  for (const one of Object.values(shown)) if (NORMS[norm] && !data.attained) one.inNorm = NORMS[norm].value(Float64Array.from(one.weight), data.shape) / smallest(data.margins(Float64Array.from(one.weight)));
  return { records: found.records, status: found.status, plain, references: shown, norm, curves, brackets, shape: data.shape };
}
