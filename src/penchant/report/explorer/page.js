"use strict";
// The interface: the state is a description of a run, kept in the address; every change trains again in a worker.

const PRESETS = JSON.parse(document.getElementById("presets").textContent);
const byId = (id) => document.getElementById(id);
const STATUS = {
  reached_target: "reached the margin asked for", out_of_steps: "took all its steps", settled: "settled", zero_gradient: "found no gradient at the start",
  diverging_step: "ended by steps that are too long", resolution_exhausted: "ended where doubles resolve no more", coordinate_underflow: "stopped: a coordinate of the gradient is below what doubles hold",
  not_finite: "met a step that is not a number", step_failed: "found no step that succeeds",
};
const NAMES = { l2: "l2", l1: "l1", linf: "l∞", nuclear: "nuclear", spectral: "spectral", Q_alpha: "Qα" };
const CHOICES = {
  linear: ["flow", "gd", "ngd", "polyak", "sign", "adam"], attention: ["flow", "gd", "ngd", "polyak", "sign", "adam", "muon"],
  "key-query": ["flow", "gd", "ngd", "polyak"], diagonal: ["flow", "gd", "ngd", "polyak"], "deep-linear": ["flow", "gd", "ngd", "polyak", "sign", "adam"], "signed-squares": ["flow", "gd"],
};
const PROVED = {
  linear: ["flow", "gd", "ngd", "sign", "adam"], attention: ["flow", "gd", "ngd", "polyak"], "key-query": ["flow"], diagonal: ["flow"], "deep-linear": ["flow", "gd"], "signed-squares": ["flow", "gd"],
};
const WORDS = { flow: "gradient flow (implicit)", gd: "gradient descent", ngd: "normalised descent", polyak: "Polyak", sign: "sign descent", adam: "Adam (ε = 0)", muon: "Muon" };
let state, result, worker, busy = false, waiting = null, sent = 0;

// ---------------------------------------------------------------- the state and its address

function load(name, changes = {}) {
  state = { ...structuredClone(PRESETS[name] || PRESETS[Object.keys(PRESETS)[0]]), arithmetic: "log", ...changes };
}

function fromAddress() {
  let given = {};
  try { given = JSON.parse(decodeURIComponent(location.hash.slice(1)) || "{}"); } catch { given = {}; }
  const name = Object.hasOwn(PRESETS, given.preset) ? given.preset : Object.keys(PRESETS)[0];
  const known = { ...PRESETS[name], arithmetic: "log" }, changes = {};
  for (const [key, value] of Object.entries(given)) if (fits(key, value, known)) changes[key] = value;
  load(name, { ...(changes.optimiser === "polyak" && { size: 2 }), ...changes });
  limit();
}

/** Flows end at a margin, and all others after their steps. */
function limit() {
  if (state.optimiser !== "flow") { state.steps ??= 5000; delete state.margin; } else if (state.setting !== "signed-squares") { state.margin ??= 1e6; delete state.steps; }
}

const finite = (value) => (Array.isArray(value) ? value.every(finite) : Number.isFinite(value));
const like = (a, b) => (Array.isArray(b) ? Array.isArray(a) && a.length === b.length && a.every((one, k) => like(one, b[k])) : Number.isFinite(a));

/** Whether a value of the address may stand in a state: an address is anybody's text. */
function fits(key, value, known) {
  if (key === "data") return typeof value === "object" && value && Object.keys(known.data).every((part) => like(value[part], known.data[part]));
  if (key === "optimiser") return CHOICES[known.setting].includes(value);
  if (key === "loss") return ["exponential", "logistic"].includes(value);
  if (key === "arithmetic") return ["log", "float64", "float32"].includes(value);
  if (key === "widths") return Array.isArray(value) && value.length < 7 && value.every((one) => Number.isInteger(one) && one > 0 && one <= 16);
  if (key === "start") return Array.isArray(value) && finite(value);
  return ["size", "steps", "margin", "alpha", "seed", "scale"].includes(key) && Number.isFinite(value) && value > 0 && value <= 1e12;
}

function remember() {
  const base = { ...PRESETS[state.preset], arithmetic: "log" }, changed = { preset: state.preset };
  for (const [key, value] of Object.entries(state)) if (!["title", "preset"].includes(key) && JSON.stringify(value) !== JSON.stringify(base[key])) changed[key] = value;
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(changed))}`);
  byId("whole").href = location.href;
}

/** A start of its own kind: normal numbers from a seed, for the layers that the controls ask for. */
function drawStart() {
  const sizes = [state.data.inputs[0].length, ...state.widths, 1], count = sizes.slice(1).reduce((sum, m, k) => sum + m * sizes[k], 0);
  let seed = state.seed >>> 0;
  const next = () => { seed = (seed + 0x6d2b79f5) >>> 0; let t = Math.imul(seed ^ (seed >>> 15), 1 | seed); t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t; return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32; };
  state.start = Array.from({ length: count }, () => state.scale * Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next()));
  const weights = problem(state).net.weight(Float64Array.from(state.start)), pull = state.data.inputs.reduce((sum, x, i) => sum + state.data.labels[i] * dot(x, weights), 0);
  if (pull < 0) for (let k = count - sizes.at(-2); k < count; k++) state.start[k] *= -1; // downhill, as penchant repairs it
}

// ---------------------------------------------------------------- training in a worker

function begin() {
  const code = `${byId("kernel").textContent}\nonmessage = ({ data }) => { try { postMessage({ id: data.id, found: study(data.spec, (share) => postMessage({ share })) }); } catch (error) { postMessage({ id: data.id, error: String(error) }); } };`;
  worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  busy = false;
  worker.onmessage = ({ data }) => {
    if (data.share !== undefined) { byId("progress").value = data.share; return; }
    busy = false;
    byId("progress").value = 1;
    if (data.id === sent) finish(data);
    if (waiting) { const spec = waiting; waiting = null; document.body.dataset.state = "running"; send(spec); }
  };
}

function send(spec) {
  if (busy) {
    if (performance.now() - busy > 400) { worker.terminate(); begin(); } else { waiting = spec; return; }
  }
  busy = performance.now();
  worker.postMessage({ id: ++sent, spec });
}

function train() {
  remember();
  document.body.dataset.state = "running";
  send(structuredClone(state));
}

function finish({ found, error }) {
  document.body.dataset.state = "ready";
  if (error) { byId("verdict").textContent = `This run failed: ${error}`; return; }
  result = found;
  globalThis.explorer = { state, result };
  drawAll();
}

// ---------------------------------------------------------------- controls

const slider = (value, low, high) => Math.round((1000 * Math.log(value / low)) / Math.log(high / low));
const RANGES = { size: [1e-4, 10], steps: [100, 1e5], margin: [10, 1e8], alpha: [1e-4, 10], scale: [1e-2, 3] };

function control(id, show) { byId(id).closest("label, fieldset").hidden = !show; }

function controls() {
  const flow = state.optimiser === "flow", layers = state.setting === "deep-linear";
  byId("preset").value = state.preset;
  byId("title").textContent = state.title;
  byId("optimiser").replaceChildren(...CHOICES[state.setting].map((name) => new Option(WORDS[name], name)));
  byId("optimiser").value = state.optimiser;
  byId("loss").value = state.loss;
  for (const name of Object.keys(RANGES)) {
    const value = state[name] ?? { size: 0.05, steps: 5000, margin: 1e6, alpha: 0.1, scale: 0.3 }[name];
    byId(name).value = slider(value, ...RANGES[name]);
    byId(`${name}-value`).textContent = told(value);
    byId(name).setAttribute("aria-valuetext", told(value));
  }
  control("loss", state.setting !== "signed-squares");
  control("size", !flow);
  control("steps", !flow);
  control("margin", flow && state.setting !== "signed-squares");
  control("alpha", state.setting === "signed-squares");
  control("scale", layers);
  control("depth", layers);
  if (layers) byId("depth").value = state.widths.length + 1;
  document.querySelector(`input[name=arithmetic][value=${state.arithmetic}]`).checked = true;
}

function change(changes) {
  Object.assign(state, changes);
  limit();
  if (state.setting === "signed-squares") state.start = state.start.map(() => state.alpha);
  controls();
  train();
}

function wire() {
  byId("preset").replaceChildren(...Object.entries(PRESETS).map(([name, spec]) => new Option(spec.title, name)));
  byId("preset").onchange = (event) => { load(event.target.value); controls(); train(); };
  byId("optimiser").onchange = (event) => change({ optimiser: event.target.value, ...(event.target.value === "polyak" && { size: 2 }), ...(state.optimiser === "polyak" && { size: 0.05 }) });
  byId("loss").onchange = (event) => change({ loss: event.target.value });
  for (const name of Object.keys(RANGES)) byId(name).oninput = (event) => {
    const [low, high] = RANGES[name], value = +(low * (high / low) ** (event.target.value / 1000)).toPrecision(name === "steps" ? 2 : 3);
    change({ [name]: value });
    if (name === "scale") { drawStart(); train(); }
  };
  byId("depth").onchange = (event) => { state.widths = Array(Math.min(6, Math.max(1, event.target.value - 1 || 1))).fill(state.widths[0] || 4); drawStart(); controls(); train(); };
  for (const one of document.querySelectorAll("input[name=arithmetic]")) one.onchange = () => change({ arithmetic: one.value });
  byId("reset").onclick = () => { load(state.preset); controls(); train(); };
  byId("link").onclick = async () => {
    try { await navigator.clipboard.writeText(location.href); byId("linked").textContent = "Copied: the address holds the whole state."; } catch { byId("linked").textContent = "The address of this page holds the whole state: copy it from there."; }
  };
  globalThis.addEventListener("hashchange", () => { fromAddress(); controls(); train(); });
}

// ---------------------------------------------------------------- the plane of the data

const SIDE = 420;
let frame = 3;

function spread() {
  const { data } = state, points = (data.tokens ? data.tokens.flat() : data.inputs).map((x) => [x[0], x[1] ?? 0]);
  const weight = state.setting === "signed-squares" ? [2] : [];
  return Math.max(...points.flat().map(Math.abs), ...weight) * 1.15 || 1;
}

const put = (x) => (SIDE / 2) * (1 + x / frame), lift = (y) => (SIDE / 2) * (1 - y / frame);

/** The direction in the plane of the first two coordinates; for tokens what the queries ask for, sample by sample. */
function arrows(weight) {
  if (!state.data.tokens) return [[weight[0], weight[1] ?? 0]];
  if (result.shape.length === 1) return [[weight[0], weight[1]]];
  const e = result.shape[1];
  return state.data.queries.map((q) => [0, 1].map((a) => q.reduce((sum, x, b) => sum + weight[a * e + b] * x, 0)));
}

function drawPlane() {
  placed = [];
  const { data } = state, svg = byId("plane"), items = [];
  svg.replaceChildren(tag("line", { x1: 0, x2: SIDE, y1: SIDE / 2, y2: SIDE / 2, class: "grid" }), tag("line", { y1: 0, y2: SIDE, x1: SIDE / 2, x2: SIDE / 2, class: "grid" }));
  if (state.setting === "signed-squares") drawInterpolants(svg);
  else if (result) drawDirections(svg);
  if (data.tokens) data.tokens.forEach((sample, i) => sample.forEach((x, t) => items.push({ x, path: ["tokens", i, t], colour: i, best: data.scores[i][t] === Math.max(...data.scores[i]), text: `sample ${i + 1}, token ${t + 1}` })));
  else data.inputs.forEach((x, i) => items.push({ x, path: ["inputs", i], colour: data.labels?.[i] < 0 ? 1 : 0, best: true, text: data.targets ? `input ${i + 1}` : `point ${i + 1}, class ${data.labels[i] > 0 ? "+" : "−"}` }));
  for (const item of items) svg.append(handle(item));
}

function handle({ x, path, colour, best, text }) {
  const shape = colour % 2 ? tag("rect", { x: -6, y: -6, width: 12, height: 12 }) : tag("circle", { r: 7 });
  const group = tag("g", { class: `handle ${best ? "best" : ""}`, style: `--own:${COLOURS[colour % COLOURS.length]}`, transform: `translate(${put(x[0])} ${lift(x[1] ?? 0)})`, tabindex: "0", role: "button", "aria-label": `${text} at (${told(x[0])}, ${told(x[1] ?? 0)}): drag, or move with the arrow keys` }, shape);
  const move = (a, b) => {
    const target = path.slice(1).reduce((at, key) => at[key], state.data[path[0]]);
    target[0] = a;
    if (target.length > 1) target[1] = b;
    group.setAttribute("transform", `translate(${put(a)} ${lift(b)})`);
    train();
  };
  group.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    group.focus();
    const svg = byId("plane"), drag = (at) => {
      const box = svg.getBoundingClientRect();
      move(((at.clientX - box.left) / box.width * 2 - 1) * frame, (1 - (at.clientY - box.top) / box.height * 2) * frame);
    };
    const stop = () => { removeEventListener("pointermove", drag); removeEventListener("pointerup", stop); dragging = null; drawPlane(); refocus(path); };
    dragging = path.join();
    addEventListener("pointermove", drag);
    addEventListener("pointerup", stop);
  });
  group.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const target = path.slice(1).reduce((at, key) => at[key], state.data[path[0]]), unit = event.shiftKey ? 0.2 : 0.05;
    focused = path.join();
    move(target[0] + unit * step[0], (target[1] ?? 0) + unit * step[1]);
  });
  group.dataset.path = path.join();
  return group;
}

let dragging = null, focused = null, placed = [];
function refocus(path) { document.querySelector(`[data-path="${path.join()}"]`)?.focus(); }

function arrow(svg, [x, y], className, label, colour) {
  const size = Math.hypot(x, y);
  if (!(size > 0)) return;
  const end = [put((0.92 * frame * x) / size), lift((0.92 * frame * y) / size)];
  svg.append(tag("line", { x1: SIDE / 2, y1: SIDE / 2, x2: end[0], y2: end[1], class: className, style: `--own:${colour}` }, tag("title", {}, label)));
  if (!["var(--ink)", "var(--soft)"].includes(colour)) return;
  write(svg, put((0.97 * frame * x) / size), lift((0.97 * frame * y) / size) + 4, label.split(" ")[0], "middle");
}

/** A label in the plane, below those it would cover; names of one place stand in one line. */
function write(svg, x, y, label, anchor) {
  const same = placed.find((one) => Math.hypot(one.x - x, one.y - y) < 1);
  if (same) { same.text.append(`, ${label}`); return; }
  let low = y;
  while (placed.some((one) => Math.abs(one.x - x) < 18 && Math.abs(one.low - low) < 15)) low += 15;
  placed.push({ x, y, low, text: svg.appendChild(tag("text", { x, y: low, "text-anchor": anchor }, label)) });
}

function drawDirections(svg) {
  const { records, references, norm } = result, last = records.at(-1).weight, several = state.data.tokens && result.shape.length === 2;
  for (const [name, one] of Object.entries(references)) if (!several || name === norm) arrows(one.weight).forEach((at, i) => arrow(svg, at, name === norm ? "reference" : "rival", `${NAMES[name]} margin`, several ? COLOURS[i % COLOURS.length] : name === norm ? "var(--ink)" : "var(--soft)"));
  const [x, y] = arrows(last)[0], size = Math.hypot(x, y);
  if (!several && size > 0) svg.append(tag("line", { x1: put((-2 * frame * y) / size), y1: lift((2 * frame * x) / size), x2: put((2 * frame * y) / size), y2: lift((-2 * frame * x) / size), class: "boundary" }, tag("title", {}, "decision boundary of the run")));
  arrows(last).forEach((at, i) => arrow(svg, at, "now", "direction of the run", several ? COLOURS[i % COLOURS.length] : "var(--c3)"));
  arrows(last).forEach((_, i) => {
    const trail = records.slice(1).map((one) => arrows(one.weight)[i]).map(([a, b]) => { const r = Math.hypot(a, b) || 1; return `${put((0.8 * frame * a) / r).toFixed(1)},${lift((0.8 * frame * b) / r).toFixed(1)}`; });
    if (trail.length > 1) svg.append(tag("path", { d: `M${trail.join("L")}`, class: "trail", style: `--own:${several ? COLOURS[i % COLOURS.length] : "var(--c3)"}` }, tag("title", {}, "path of the direction")));
  });
}

function drawInterpolants(svg) {
  const { inputs, targets } = state.data;
  inputs.forEach(([a, b], i) => {
    const size = Math.hypot(a, b), x = (targets[i] * a) / size ** 2, y = (targets[i] * b) / size ** 2;
    svg.append(tag("line", { x1: put(x - (9 * frame * b) / size), y1: lift(y + (9 * frame * a) / size), x2: put(x + (9 * frame * b) / size), y2: lift(y - (9 * frame * a) / size), class: "boundary" }, tag("title", {}, "weights that fit")));
  });
  if (!result) return;
  svg.append(tag("path", { d: `M${result.records.map(({ weight: [x, y] }) => `${put(x).toFixed(1)},${lift(y).toFixed(1)}`).join("L")}`, class: "trail", style: "--own:var(--c3)" }, tag("title", {}, "path of the weight")));
  Object.entries(result.references).forEach(([name, { weight }]) => {
    svg.append(tag("circle", { cx: put(weight[0]), cy: lift(weight[1]), r: name === "Q_alpha" ? 6 : 4, class: name === "Q_alpha" ? "target" : "other" }, tag("title", {}, NAMES[name])));
    write(svg, put(weight[0]) + 12, lift(weight[1]) + 4, NAMES[name], "start");
  });
}

// ---------------------------------------------------------------- curves over the logarithm of time

/** log t on an axis of its own logarithm: from t = 0 to t = e^1000000 and beyond. */
const FLOOR = 1e-16; // what differs by less is equal, in doubles
const clock = (logTime) => Math.log10(1 + softplus(logTime));
/** Ticks at e^k: at powers of ten, and between them where there are few. */
const ticks = (last, place, sign) => (last < 1000 ? [1, 2, 5, 10, 20, 50, 100, 200, 500] : [1, 10, 100, 1000, 1e4, 1e5, 1e6, 1e7, 1e8]).map((k) => [place(k), sign + k === "1" ? "e" : `e^${sign}${k >= 1e4 ? `10${superscript(Math.log10(k))}` : k}`]);
const times = (last) => (last < 12 ? [0.1, 0.3, 1, 3, 10, 30, 100, 1000, 1e4, 1e5].map((t) => [clock(Math.log(t)), told(t)]) : ticks(last, (k) => Math.log10(1 + k), ""));
const apart = (y) => (y <= FLOOR ? "0 up to rounding" : told(y));
/** e to a power, of which four digits are told. */
const exponential = (power) => `e${superscript(+power.toPrecision(4))}`;
const when = (logTime) => (logTime < 12 ? told(Math.exp(logTime)) : exponential(logTime));

/** A time, from log(1 + t). */
const shown = (level) => (level < 12 ? told(Math.expm1(level)) : exponential(level));

function drawCurves() {
  const { records, references, curves, brackets, norm } = result, late = records.slice(1), x = late.map((one) => clock(one.logTime)), fitted = state.setting === "signed-squares";
  const common = { x_label: "time t (axis: log log t)", x_scale: "linear", x_ticks: times(late.at(-1).logTime), tell: (line, at, y) => `t = ${shown(10 ** at - 1)}, ${apart(y)}` };
  const directions = Object.entries(curves).map(([name, values]) => ({ label: name === norm ? `to the ${NAMES[name]} reference` : `to the ${NAMES[name]} rival`, x, y: values.slice(1).map((y) => Math.max(y, FLOOR)), style: "line", colour: { l2: 0, l1: 1, linf: 3, Q_alpha: 2 }[name] }));
  if (brackets[0]) directions.push({ label: `certified gap of the ${NAMES[norm]} norm`, x, y: brackets.slice(1).map(({ lower, upper }) => upper / lower - 1), style: "prediction" });
  chart(byId("directions"), { ...common, title: "How far the direction is from where theory says it goes", y_label: fitted ? "1 − corr" : "1 − corr, certified gap", y_scale: "log", lines: directions });
  const depth = late.map((one) => (fitted && one.logExcess < -60 ? NaN : -one.logExcess)); // below that a residual is rounding
  const depths = { ...common, title: "Log excess", y_label: "L − L⋆", y_scale: "log", y_ticks: [0.999, 0.99, 0.9].map((one) => [-Math.log(one), told(one)]).concat(ticks(Math.max(...depth.filter(Number.isFinite)), (k) => k, "-")), down: true, lines: [{ label: "the run", x, y: depth, style: "line", colour: 2 }], tell: (line, at, y) => `t = ${shown(10 ** at - 1)}, L − L⋆ = ${exponential(-y)}` };
  chart(byId("excess"), depths);
  const count = Math.min(40, records[0].margins.length), best = references[norm]?.value;
  const many = count > 8 && !fitted;
  const lines = Array.from({ length: count }, (_, k) => ({ label: `${fitted ? "prediction" : "margin"} ${k + 1}`, x, y: late.map((one) => one.margins[k] / (fitted ? 1 : length(one.weight))), style: "line", ...(many && { quiet: true, colour: 6 }) }));
  if (many) lines.push({ label: `smallest margin (thin: ${count === records[0].margins.length ? "all" : count} others)`, x, y: late.map((one) => Math.min(...one.margins) / length(one.weight)), style: "line", colour: 0 });
  byId("margins-title").textContent = fitted ? "Fit" : "Margins";
  if (norm === "l2" && best && !fitted) lines.push({ label: "largest possible smallest margin", x: [x[0], x.at(-1)], y: [1 / best, 1 / best], style: "prediction" });
  chart(byId("margins"), { ...common, title: "Margins", y_label: fitted ? "predictions" : "margin / |w|", y_scale: "linear", lines });
}

/** How well the run certifies itself: what it proves lies left of the end of the bar; rivals lie where their norm exceeds the lower bound. */
function drawBar() {
  const { brackets, references, norm } = result, where = byId("bar"), last = brackets.at(-1);
  if (!last) { where.replaceChildren("A fit has no margins to certify: the picture shows the weights that fit, and where Qα is least among them."); return; }
  const { lower, upper } = last, gap = upper / lower - 1, floor = -12;
  const wide = Math.min(700, Math.max(280, where.clientWidth || 600)), stride = wide < 400 ? 4 : 2;
  const at = (share) => 24 + (wide - 48) * Math.min(1, Math.max(0, (Math.log10(Math.max(share, 1e-300)) - floor) / -floor));
  const others = Object.entries(references).filter(([name, one]) => name !== norm && Number.isFinite(one.inNorm)).map(([name, one]) => [NAMES[name], one.inNorm / lower - 1]).sort((a, b) => a[1] - b[1]);
  const above = others.length ? 12 : 52, svg = tag("svg", { viewBox: `0 ${above} ${wide} ${134 - above}`, role: "img", "aria-label": `The least ${NAMES[norm]} norm with margins 1 lies between ${lower} and ${upper}` });
  for (let power = floor; power <= 0; power += stride) svg.append(tag("line", { x1: at(10 ** power), x2: at(10 ** power), y1: 56, y2: 96, class: "grid" }), tag("text", { x: at(10 ** power), y: 114, "text-anchor": "middle" }, power ? `10${superscript(power)}` : "1"));
  svg.append(tag("rect", { x: 24, y: 64, width: Number.isFinite(gap) ? Math.max(4, at(gap) - 24) : wide - 48, height: 24, class: "certain" }));
  others.forEach(([name, share], k) => svg.append(tag("line", { x1: at(share), x2: at(share), y1: 40 - 18 * (k % 2), y2: 96, class: "rival" }), tag("text", { x: at(share) - 5, y: 48 - 18 * (k % 2), "text-anchor": "end" }, `${name} rival ${told(share)}`)));
  svg.append(tag("text", { x: wide / 2, y: 130, "text-anchor": "middle" }, "relative excess over the lower bound"));
  where.replaceChildren(svg, html("p", {}, `${lower.toPrecision(10)} ≤ least ${NAMES[norm]} norm with margins 1 ≤ ${Number.isFinite(upper) ? upper.toPrecision(10) : "∞"}. `, Number.isFinite(gap) ? `The weights of the run bound it from above, the multipliers it gathered from below; the gap ${told(gap)} is the end of the bar.` : "Not all margins are positive yet: nothing bounds it from above."));
}

function drawPlain() {
  const where = byId("ordinary"), { plain } = result;
  byId("ordinary-panel").hidden = !plain;
  if (!plain) return;
  const said = plain.died ? `In ${state.arithmetic} the run dies at margin ${told(plain.died.margin)}, after ${plain.died.steps} steps: ${plain.died.why}.` : `In ${state.arithmetic} the run came to margin ${told(Math.min(...plain.records.at(-1).margins))} alive.`;
  byId("died").textContent = said;
  const rows = plain.records.filter((one) => Math.min(...one.margins) > 0);
  chart(where, { title: "Ordinary arithmetic", x_label: "smallest margin", y_label: "error of the gradient direction", x_scale: "log", y_scale: "log", lines: [{ label: state.arithmetic, x: rows.map((one) => Math.min(...one.margins)), y: rows.map((one) => Math.max(one.miss, 1e-17)), style: "line", colour: 1 }, { label: "noise from here on", x: [0.1, 1e3], y: [1, 1], style: "prediction" }], window: [Math.max(0.01, Math.min(...rows.map((one) => Math.min(...one.margins)))), Math.max(50, ...rows.map((one) => Math.min(...one.margins)))] });
}

function drawAll() {
  const { records, references, status, norm, curves } = result, last = records.at(-1), near = curves[norm]?.at(-1);
  frame = dragging ? frame : spread();
  if (!dragging) drawPlane();
  else { const kept = document.querySelector(`[data-path="${dragging}"]`); drawPlane(); kept && document.querySelector(`[data-path="${dragging}"]`)?.focus(); }
  if (focused) { refocus(focused.split(",")); focused = null; }
  drawCurves();
  drawBar();
  drawPlain();
  const reached = state.setting === "signed-squares" ? "" : `, smallest margin ${told(Math.min(...last.margins))}`;
  const goal = state.setting === "signed-squares" ? `the least ${NAMES[norm]} among all weights that fit` : `the ${NAMES[norm]} margin`;
  byId("verdict").textContent = `${PROVED[state.setting].includes(state.optimiser) ? "Theory" : "Conjecture"}: ${goal}. The run ${STATUS[status] || status} at t = ${when(last.logTime)}${reached}${near === undefined ? "" : `; 1\u00a0−\u00a0corr to it ${apart(near)}`}.`;
  byId("caption").textContent = state.setting === "signed-squares" ? "Line: all weights that fit. Green: the path of the weight, and where Qα is least; circles: where l1 and l2 are. The blue point is the input."
    : result.shape.length === 2 ? `A colour per sample; filled: its best token. Lines: the direction its query asks for, with its path${references[norm] ? "; dashed: the reference" : ""}.`
      : "Green: the run and the path of its direction. Dashed: the reference. Dotted: rivals. Grey line: the decision boundary.";
  byId("weight").textContent = last.weight.length > 12 ? "" : `Direction: (${last.weight.map((w) => (w / length(last.weight)).toFixed(6)).join(", ")})`;
}

const framed = globalThis.parent !== globalThis; // within a page of the site: fewer panels, and a link to all
document.body.classList.toggle("framed", framed);
byId("whole").hidden = !framed;
begin();
wire();
fromAddress();
controls();
frame = spread();
drawPlane();
train();
