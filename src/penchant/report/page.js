"use strict";
// Figures load when they come into view, claims are filtered by words and kinds, citations are copied.

const received = new Map(), asked = new Map();

/** Called by the figures.js of a study. */
function receive(study, figures) {
  received.set(study, figures);
}

function load(study) {
  if (!asked.has(study)) asked.set(study, new Promise((done, failed) => {
    const script = html("script", { src: `./${encodeURIComponent(study)}/figures.js` });
    script.onload = () => done(received.get(study));
    script.onerror = failed;
    document.head.append(script);
  }));
  return asked.get(study);
}

async function draw(where) {
  const { study, figure } = where.dataset;
  try {
    chart(where, (received.get(study) ?? (await load(study)))[figure]); // printing does not wait: what is there is drawn at once
    where.dataset.drawn = "";
  } catch {
    where.append(html("p", { class: "soft" }, "The data of this figure are not next to the page; the link leads to its drawing."));
  }
}

const watcher = new IntersectionObserver((seen) => {
  for (const { isIntersecting, target } of seen) if (isIntersecting) { watcher.unobserve(target); draw(target); }
}, { rootMargin: "300px" });
for (const where of document.querySelectorAll(".plot")) watcher.observe(where);

// Print: the rows of all claims unless some are open, all citations, and every figure that is not in a closed part.
const visible = () => [...document.querySelectorAll(".plot:not([data-drawn])")].filter((where) => !where.closest("details:not([open])"));
addEventListener("load", () => setTimeout(() => { for (const where of visible()) load(where.dataset.study); }, 500));
let opened = [];
addEventListener("beforeprint", () => {
  opened = document.querySelector(".claim[open]") ? [] : [...document.querySelectorAll("#ledger > .paper:not([open])")];
  opened.push(...document.querySelectorAll("#citations > details:not([open])"));
  for (const one of opened) one.open = true;
  for (const where of visible()) draw(where);
});
addEventListener("afterprint", () => { for (const one of opened) one.open = false; });

// ---------------------------------------------------------------- filter and search

const claims = [...document.querySelectorAll(".claim")], texts = claims.map((claim) => claim.textContent.toLowerCase());
const filters = ["verdict", "kind", "paper"].map((name) => [name, document.getElementById(`filter-${name}`)]);

function filter() {
  const words = document.getElementById("words").value.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = filters.filter(([, select]) => select.value);
  let count = 0;
  claims.forEach((claim, k) => {
    const shown = words.every((word) => texts[k].includes(word)) && wanted.every(([name, select]) => claim.dataset[name] === select.value);
    claim.hidden = !shown;
    count += shown;
  });
  for (const paper of document.querySelectorAll("#ledger > .paper")) {
    const left = paper.querySelectorAll(".claim:not([hidden])").length;
    paper.hidden = left === 0;
    paper.open = left > 0 && words.length + wanted.length > 0;
  }
  document.getElementById("shown").textContent = `${count} of ${claims.length} claims`;
}

if (claims.length) {
  document.getElementById("words").addEventListener("input", filter);
  for (const [, select] of filters) select.addEventListener("change", filter);
}

// ---------------------------------------------------------------- links into closed sections, and citations

function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let at = target; at; at = at.parentElement) {
    at.hidden = false; // also where a filter has hidden its paper
    if (at instanceof HTMLDetailsElement) at.open = true;
  }
  target.scrollIntoView();
}
addEventListener("hashchange", reveal);
if (location.hash) reveal();

for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", async () => {
  const text = document.getElementById(`bibtex-${button.dataset.work}`).textContent, said = document.getElementById("said");
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    said.textContent = text; // where a page may not copy, it shows
    location.hash = "citations";
  }
});
