"use strict";
// One figure style for the report and the explorer: SVG from data, values under the pointer or the arrow keys, predictions dashed.

const COLOURS = ["var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)"];
const DASHES = ["", "2 2", "8 3 2 3"]; // tell curves of one colour apart, where there are more curves than colours
const RIGHT = 14, TOP = 12, BOTTOM = 48;

function tag(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function html(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const superscript = (n) => String(n).replace(/./g, (c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] || { "-": "⁻", "+": "", ".": "·" }[c] || c);

/** Words of which what follows a ^ stands higher, and the index of a letter lower, as SVG. */
function raised(text) {
  let level = 0;
  return text.split(/(\^-?[\w.·⁰-⁹¹²³]+|(?<=(?<![A-Za-z])[A-Za-zα-ω])_\w+)/).map((part) => {
    const next = { "^": -5, _: 4 }[part[0]] ?? 0, made = tag("tspan", { dy: next - level, "font-size": next ? "0.8em" : "1em" }, next ? part.slice(1).replace("-", "−") : part);
    level = next;
    return made;
  });
}

/** A number as people write it: four digits, powers of ten where they are shorter. */
function told(x) {
  if (!Number.isFinite(x)) return String(x);
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) {
    const [digits, power] = x.toExponential(3).split("e");
    return `${String(+digits)}·10${superscript(+power)}`.replace(/^(-?)1·/, "$1");
  }
  return String(+x.toPrecision(4));
}

function linearTicks(low, high) {
  const raw = (high - low) / 6 || 1, unit = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find((k) => k * unit >= raw) * unit;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + 1e-9 * step; at += step) found.push([Math.abs(at) < 1e-12 * step ? 0 : at, told(+at.toPrecision(12))]);
  return found;
}

function logTicks(low, high, most) {
  const first = Math.ceil(low - 1e-9), last = Math.floor(high + 1e-9), stride = Math.max(1, Math.ceil((last - first) / most));
  if (high - low < 0.7) return linearTicks(10 ** low, 10 ** high).filter(([at]) => at > 0).map(([at, text]) => [Math.log10(at), text]);
  if (high - low < 2) return [-1, 0, 1, 2].flatMap((k) => [1, 2, 5].map((digit) => +`${digit}e${Math.floor(low) + k}`)).map((at) => [Math.log10(at), told(at)]).filter(([at]) => at >= low && at <= high);
  const found = [];
  for (let power = first; power <= last; power += stride) found.push([power, power === 0 ? "1" : `10${superscript(power)}`]);
  return found;
}

/** An axis: where a value lies between 0 and 1, and its ticks. */
function axis(values, scale, given, most = 7) {
  const place = scale === "log" ? (x) => (x > 0 ? Math.log10(x) : NaN) : (x) => x;
  const shown = values.map(place).filter(Number.isFinite);
  let [low, high] = given ? given.map(place) : [Math.min(...shown), Math.max(...shown)];
  const room = given ? 0 : (high - low || Math.abs(high) || 1) * 0.04;
  [low, high] = [low - room, high + room];
  const ticks = scale === "log" ? logTicks(low, high, most) : linearTicks(low, high);
  return { at: (x) => (place(x) - low) / (high - low), ticks: ticks.map(([at, text]) => [(at - low) / (high - low), text]) };
}

const numbers = (list) => list.map((x) => (x === null ? NaN : x));

const ordered = (values) => [...new Set(values)].sort((a, b) => a - b);

/** The edges of the cells around the points of a grid: midway between neighbours, as the axis shows them. */
function edges(values, scale) {
  const [to, from] = scale === "log" ? [Math.log, Math.exp] : [(x) => x, (x) => x], at = ordered(values).map(to);
  const middle = at.slice(1).map((x, k) => (x + at[k]) / 2), last = at.length - 1;
  return last > 0 ? [2 * at[0] - middle[0], ...middle, 2 * at[last] - middle[last - 1]].map(from) : [at[0] - 0.5, at[0] + 0.5].map(from);
}

/** A map as one picture: thousands of cells as shapes would make the page slow. */
function cells(line, figure, across, down) {
  const values = numbers(line.values), low = Math.min(...values.filter(Number.isFinite)), high = Math.max(...values.filter(Number.isFinite));
  const sides = edges(line.x, figure.x_scale).map(across), heights = edges(line.y, figure.y_scale).map(down), columns = ordered(line.x), rows = ordered(line.y);
  const box = { x: sides[0], y: Math.min(...heights), width: sides[columns.length] - sides[0], height: Math.max(...heights) - Math.min(...heights) };
  const canvas = html("canvas", { width: Math.round(2 * box.width), height: Math.round(2 * box.height) }), pen = canvas.getContext("2d");
  const pixel = (x) => Math.round(2 * x);
  line.x.forEach((_, k) => {
    if (!Number.isFinite(values[k])) return;
    const share = high > low ? (values[k] - low) / (high - low) : 0.5, i = columns.indexOf(line.x[k]), j = rows.indexOf(line.y[k]);
    const [left, right] = [sides[i], sides[i + 1]].map((x) => pixel(x - box.x)), [top, bottom] = [heights[j], heights[j + 1]].map((y) => pixel(y - box.y)).sort((a, b) => a - b);
    pen.fillStyle = `rgb(${68 + 185 * share ** 1.4},${1 + 230 * share},${84 + 90 * Math.sin(Math.PI * share) - 47 * share})`; // dark violet to yellow
    pen.fillRect(left, top, right - left, bottom - top);
  });
  return [tag("image", { ...box, href: canvas.toDataURL(), preserveAspectRatio: "none" }), `${line.label}: ${told(low)} (dark) to ${told(high)} (bright)`];
}

/** How far the bars of errors go down (0) and up (1): as far, or by two lists. */
const reach = (error, up) => (Array.isArray(error[0]) ? error[up] : error);

/** The corners of the errors around a curve: above it from left to right, below it back. */
function band(points, error, across, down) {
  const edge = (sign) => points.map(([x, y, k]) => `${across(x).toFixed(2)},${down(y + sign * error[k]).toFixed(2)}`);
  return [...edge(1), ...edge(-1).reverse()];
}

/** Draw a figure into an element, which is emptied first. `figure` has title, labels, scales, lines (label, x, y, style) and perhaps ticks of its own. */
function chart(where, figure) {
  const W = Math.min(900, Math.max(280, where.clientWidth || 640)), H = Math.round(Math.min(460, Math.max(230, 0.64 * W)));
  const drawn = figure.lines.map((line) => ({ ...line, x: numbers(line.x), y: numbers(line.y) }));
  const usable = (x, y) => Number.isFinite(x) && Number.isFinite(y) && (figure.x_scale !== "log" || x > 0) && (figure.y_scale !== "log" || y > 0);
  const points = drawn.map((line) => line.x.map((x, k) => [x, line.y[k], k]).filter(([x, y]) => usable(x, y)));
  const all = points.flat(), inside = figure.window ? all.filter(([x]) => x >= figure.window[0] && x <= figure.window[1]) : all;
  const maps = drawn.filter((line) => line.style === "map"), bars = drawn.flatMap((line, k) => (line.error && line.style === "points" ? points[k].flatMap(([, y, at]) => [y - reach(line.error, 0)[at], y + reach(line.error, 1)[at]]) : []));
  const horizontal = axis([...all.map(([x]) => x), ...maps.flatMap((line) => edges(line.x, figure.x_scale))], figure.x_scale, figure.window, W < 420 ? 4 : 7);
  const vertical = axis([...inside.map(([, y]) => y), ...maps.flatMap((line) => edges(line.y, figure.y_scale)), ...bars], figure.y_scale, figure.range);
  const ends = (figure.y_ticks ? figure.y_ticks.map(([at, word]) => [vertical.at(at), word]) : vertical.ticks).filter(([share]) => share > -1e-9 && share < 1 + 1e-9);
  const LEFT = 34 + 7.5 * Math.max(3, ...ends.map(([, text]) => text.replace("^", "").length)); // the widest tick has room beside the name
  const across = (x) => LEFT + horizontal.at(x) * (W - LEFT - RIGHT), rise = (share) => (figure.down ? TOP + share * (H - TOP - BOTTOM) : H - BOTTOM - share * (H - TOP - BOTTOM)), down = (y) => rise(vertical.at(y));
  const svg = tag("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", tabindex: "0", "aria-label": `${figure.title}. ${figure.y_label} against ${figure.x_label}. Arrow keys read the values.` });
  const id = `clip${Math.random().toString(36).slice(2)}`, plot = tag("g", { "clip-path": `url(#${id})` });
  svg.append(tag("defs", {}, tag("clipPath", { id }, tag("rect", { x: LEFT, y: TOP, width: W - LEFT - RIGHT, height: H - TOP - BOTTOM }))));
  let right = -Infinity; // labels that would overlap are left out, here and below
  for (const [share, text] of figure.x_ticks ? figure.x_ticks.map(([at, word]) => [horizontal.at(at), word]) : horizontal.ticks) {
    if (share < -1e-9 || share > 1 + 1e-9) continue;
    const x = LEFT + share * (W - LEFT - RIGHT);
    svg.append(tag("line", { x1: x, x2: x, y1: TOP, y2: H - BOTTOM, class: "grid" }));
    if (x - 4.5 * text.length < right) continue;
    right = x + 4.5 * text.length;
    svg.append(tag("text", { x, y: H - BOTTOM + 18, "text-anchor": "middle" }, ...raised(text)));
  }
  let last = Infinity;
  for (const [share, text] of ends) {
    const y = rise(share);
    svg.append(tag("line", { x1: LEFT, x2: W - RIGHT, y1: y, y2: y, class: "grid" }));
    if (Math.abs(y - last) < 14) continue;
    last = y;
    svg.append(tag("text", { x: LEFT - 7, y: y + 4, "text-anchor": "end" }, ...raised(text)));
  }
  svg.append(tag("path", { d: `M${LEFT} ${TOP}V${H - BOTTOM}H${W - RIGHT}`, class: "frame" }), plot);
  svg.append(tag("text", { x: (LEFT + W - RIGHT) / 2, y: H - 10, "text-anchor": "middle", class: "name" }, ...raised(figure.x_label)));
  svg.append(tag("text", { transform: `translate(15 ${(TOP + H - BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle", class: "name" }, ...raised(figure.y_label)));

  const legend = html("ul", { class: "legend" }), groups = [];
  drawn.forEach((line, index) => {
    const colour = line.style === "prediction" && drawn.filter((one) => one.style === "prediction").length === 1 ? "var(--ink)" : COLOURS[(line.colour ?? index) % COLOURS.length];
    const group = tag("g", { style: `--own:${colour}`, class: line.quiet ? "quiet" : "" });
    if (line.style === "map") {
      const [image, text] = cells(line, figure, across, down);
      group.append(image);
      legend.append(html("li", {}, text));
    } else {
      const path = points[index].map(([x, y]) => `${across(x).toFixed(2)},${down(y).toFixed(2)}`);
      const dash = line.style === "prediction" ? "7 5" : line.colour !== undefined ? "" : DASHES[Math.floor(index / COLOURS.length) % DASHES.length];
      if (line.error && line.style === "line") group.append(tag("path", { d: `M${band(points[index], line.error, across, down).join("L")}Z`, class: "band" }));
      else if (line.error) points[index].forEach(([x, y, k]) => group.append(tag("line", { x1: across(x), x2: across(x), y1: down(y - reach(line.error, 0)[k]), y2: down(y + reach(line.error, 1)[k]), class: "curve" })));
      if (line.style === "points" || path.length === 1) path.forEach((at) => group.append(tag("circle", { cx: at.split(",")[0], cy: at.split(",")[1], r: 3.4, class: "dot" })));
      else if (path.length) group.append(tag("path", { d: `M${path.join("L")}`, class: "curve", ...(dash && { "stroke-dasharray": dash }) }));
      const key = tag("svg", { viewBox: "0 0 28 10", class: "key", "aria-hidden": "true" }, line.style === "points" ? tag("circle", { cx: 14, cy: 5, r: 3.4, class: "dot" }) : tag("line", { x1: 1, x2: 27, y1: 5, y2: 5, class: "curve", ...(dash && { "stroke-dasharray": dash }) }));
      const button = html("button", { type: "button", "aria-pressed": "true", style: `--own:${colour}` }, key, line.label);
      button.onclick = () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        group.style.display = on ? "" : "none";
      };
      for (const [event, on] of [["pointerenter", true], ["pointerleave", false], ["focus", true], ["blur", false]]) button.addEventListener(event, () => group.classList.toggle("lit", on));
      if (!line.quiet && (drawn.length > 1 || ![figure.y_label, "run"].includes(line.label))) legend.append(html("li", {}, button)); // a curve alone has its name on the axis
    }
    groups.push(group);
    plot.append(group);
  });
  const spot = tag("circle", { r: 5, class: "spot", visibility: "hidden" }), tip = html("output", { class: "tip", hidden: "" });
  plot.append(spot);
  const flat = points.flatMap((list, index) => (drawn[index].style === "map" ? [] : list.map(([x, y]) => ({ index, x, y, left: across(x), top: down(y) }))));
  let current = -1;
  function show(next) {
    current = next;
    groups.forEach((group, index) => group.classList.toggle("lit", next >= 0 && flat[next].index === index));
    const hidden = next < 0;
    spot.setAttribute("visibility", hidden ? "hidden" : "visible");
    tip.hidden = hidden;
    if (hidden) return;
    const { index, x, y, left, top } = flat[next];
    spot.setAttribute("cx", left);
    spot.setAttribute("cy", top);
    const read = figure.tell ? figure.tell(drawn[index], x, y) : `${figure.x_label} ${told(x)}, ${figure.y_label} ${told(y)}`;
    tip.textContent = `${drawn[index].label}: ${read}`;
    tip.style.cssText = `left:${(100 * left) / W}%;top:${(100 * top) / H}%;transform:translate(${left > W / 2 ? "calc(-100% - 10px)" : "10px"},-120%)`;
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), x = ((event.clientX - box.left) / box.width) * W, y = ((event.clientY - box.top) / box.height) * H;
    let best = -1, near = 60 ** 2;
    flat.forEach((one, k) => {
      const away = (one.left - x) ** 2 + (one.top - y) ** 2;
      if (away < near && groups[one.index].style.display !== "none") [best, near] = [k, away];
    });
    show(best);
  });
  svg.addEventListener("pointerleave", () => show(-1));
  svg.addEventListener("blur", () => show(-1));
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -flat.length, End: flat.length }[event.key];
    if (!step || !flat.length) return;
    event.preventDefault();
    show(Math.min(flat.length - 1, Math.max(0, current + step)));
  });
  const held = where.querySelector("svg:focus");
  where.replaceChildren(html("div", { class: "chart" }, svg, tip), legend);
  if (held) svg.focus(); // a run that ends meanwhile leaves the reader where they were
  return svg;
}
