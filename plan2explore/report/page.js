"use strict";
// Charts, the coverage animation and videos of a report page. Nothing is fetched; names are only ever put in as text.
const COLOURS = 6, HEIGHT = 250, LEFT = 52, RIGHT = 12, TOP = 10, BOTTOM = 38;
const SHADES = [[24, 15, 120], [126, 3, 168], [204, 71, 120], [248, 149, 64], [240, 249, 33]];
const WALL = 254, WALL_COLOUR = [128, 138, 150, 255];  // in place of the frame of a cell's first visit
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
const settings = {smooth: 0, together: false};

const make = (name, attributes = {}, text = "") => {
  const svg = ["svg", "path", "line", "text", "circle", "g", "rect"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
};
const button = (text, act) => { const made = make("button", {type: "button"}, text); made.onclick = act; return made; };
const short = value => {
  const size = Math.abs(value), [by, unit] = size >= 1e6 ? [1e6, "M"] : size >= 1e3 ? [1e3, "k"] : [1, ""];
  return size && size < 1e-3 ? value.toExponential(1) : String(+(value / by).toPrecision(4)) + unit;
};
const shade = level => {
  const at = Math.min(Math.max(level, 0), 0.999) * (SHADES.length - 1), low = Math.floor(at);
  return SHADES[low].map((part, index) => Math.round(part + (at - low) * (SHADES[low + 1][index] - part)));
};
const quantile = (sorted, share) => sorted[Math.round(share * (sorted.length - 1))];

function ticks(low, high, count) {
  const raw = (high - low) / count || 1, size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 5, 10].find(each => each * size >= raw), found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(+at.toPrecision(12));
  return found;
}

function smoothed(y) {  // an exponential mean that starts at the first value
  let mean = null;
  return y.map(value => (mean = value === null ? mean : mean === null ? value : mean + (1 - settings.smooth) * (value - mean)));
}

function at(line, x) {  // by interpolation; nothing beyond a line's ends
  const after = line.x.findIndex(each => each >= x);
  if (after < 0 || line.x[0] > x) return null;
  if (line.x[after] === x || after === 0) return line.y[after];
  const [a, b] = [line.x[after - 1], line.x[after]], [from, to] = [line.y[after - 1], line.y[after]];
  return from === null || to === null ? null : from + (x - a) / (b - a) * (to - from);
}

function seedsTogether(lines) {  // one line for each group, with its mean, least and greatest
  const groups = lines.reduce((all, line) => all.set(line.group, [...(all.get(line.group) || []), line]), new Map());
  return [...groups].flatMap(([group, all]) => {
    if (all.length < 2 || !group) return all;
    const first = Math.max(...all.map(line => line.x[0])), last = Math.min(...all.map(line => line.x.at(-1)));
    const x = [...new Set(all.flatMap(line => line.x))].filter(each => each >= first && each <= last).sort((a, b) => a - b);
    const rows = x.map(each => all.map(line => at(line, each)).filter(value => value !== null));
    return [{...all[0], label: `${group}, mean of ${all.length}`, x, y: rows.map(row => row.reduce((a, b) => a + b, 0) / row.length),
      low: rows.map(row => Math.min(...row)), high: rows.map(row => Math.max(...row))}];
  });
}

class Chart {
  constructor(host) {
    Object.assign(this, {host, data: JSON.parse(host.dataset.chart), zoom: null, hidden: new Set(), log: false});
    this.scatter = Boolean(this.data.values);
    host.removeAttribute("data-chart");
    this.svg = host.appendChild(make("svg", {role: "img", height: HEIGHT}));
    this.svg.setAttribute("aria-label", `${this.data.y} over ${this.data.x}`);
    this.tip = host.appendChild(make("div", {class: "tip", hidden: ""}));
    this.legend = host.appendChild(make("div", {class: "legend"}));
    this.svg.onpointermove = event => this.hover(event);
    this.svg.onpointerleave = () => { this.tip.hidden = true; this.mark.replaceChildren(); this.from = null; };
    this.svg.onpointerdown = event => { this.from = event.pointerType === "mouse" ? event.offsetX : null; };
    this.svg.onpointerup = event => this.zoomTo(event.offsetX);
    this.svg.ondblclick = () => { this.zoom = null; this.draw(); };
    new ResizeObserver(() => this.draw()).observe(host);
  }

  zoomTo(x) {
    if (this.from != null && Math.abs(x - this.from) > 8) {
      this.zoom = [this.from, x].sort((a, b) => a - b).map(each => this.xOf(each));
      this.draw();
    }
    this.from = null;
  }

  lines() {
    const every = settings.together ? seedsTogether(this.data.lines) : this.data.lines;
    return every.map(line => settings.smooth && line.y.length > 2 && !line.points ? {...line, y: smoothed(line.y)} : line);
  }

  limits(lines) {  // of the upright axis: a steep beginning or a single peak may not flatten all the rest
    const inside = (line, index) => !this.zoom || (line.x[index] >= this.zoom[0] && line.x[index] <= this.zoom[1]);
    const usable = value => value !== null && value !== undefined && (!this.log || value > 0);
    const pick = (line, values, from) => (values || []).filter((v, index) => index >= from && usable(v) && inside(line, index));
    const every = lines.flatMap(line => [line.y, line.low, line.high].flatMap(values => pick(line, values, 0)));
    const later = lines.flatMap(line => pick(line, line.y, Math.ceil(0.1 * line.x.length))).sort((a, b) => a - b);
    const last = lines.map(line => line.y.at(-1)).filter(usable);
    let low = Math.min(...every), high = Math.max(...every);
    if (later.length >= 10 && !this.log && !this.scatter) {
      const from = Math.min(quantile(later, 0.02), ...last), to = Math.max(quantile(later, 0.98), ...last);
      if (to > from && high - low > 4 * (to - from)) [low, high] = [from, to];
    }
    if (!every.length) return [0, 1];
    const margin = this.log ? 0 : 0.05 * (high - low) || Math.abs(high) * 0.05 || 0.5;
    return low === high && this.log ? [low / 2, high * 2] : [low - margin, high + margin];
  }

  draw() {
    const width = this.host.clientWidth;
    if (!width) return;
    const shown = this.lines().filter(line => !this.hidden.has(line.label)), scale = this.log ? Math.log10 : value => value;
    const every = shown.flatMap(line => line.x), [low, high] = this.limits(shown);
    let [left, right] = this.zoom || (every.length ? [Math.min(...every), Math.max(...every)] : [0, 1]);
    if (left === right) [left, right] = [left - 1, right + 1];
    if (this.scatter) [left, right] = [left - 0.03 * (right - left), right + 0.03 * (right - left)];
    const across = x => LEFT + (x - left) / (right - left) * (width - LEFT - RIGHT);
    const up = y => HEIGHT - BOTTOM - (scale(y) - scale(low)) / (scale(high) - scale(low)) * (HEIGHT - TOP - BOTTOM);
    this.xOf = place => left + (place - LEFT) / (width - LEFT - RIGHT) * (right - left);
    Object.assign(this, {across, up, shown});
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...this.axes(width, left, right, low, high));
    const box = {x: LEFT, y: TOP - 4, width: Math.max(1, width - LEFT - RIGHT + 4), height: HEIGHT - TOP - BOTTOM + 8};
    const plot = this.svg.appendChild(make("svg", {...box, viewBox: Object.values(box).join(" ")}));
    for (const line of shown) plot.append(...this.drawn(line));
    const beyond = shown.flatMap(line => line.y).filter(y => y !== null && (y < low || y > high)).length;
    if (beyond && !this.zoom) this.svg.append(make("text", {x: width - RIGHT, y: TOP + 8, "text-anchor": "end"}, `${beyond} outside`));
    this.mark = this.svg.appendChild(make("g"));
    this.names();
  }

  axes(width, left, right, low, high) {
    const made = [], foot = HEIGHT - BOTTOM, grid = {stroke: "var(--line)", "stroke-width": 1};
    const steps = this.log ? ticks(Math.ceil(Math.log10(low)), Math.log10(high), 4).map(power => 10 ** power) : ticks(low, high, 5);
    for (const y of steps) {
      made.push(make("line", {x1: LEFT, x2: width - RIGHT, y1: this.up(y), y2: this.up(y), ...grid}));
      if (!this.scatter) made.push(make("text", {x: LEFT - 6, y: this.up(y) + 4, "text-anchor": "end"}, short(y)));
    }
    for (const x of this.scatter ? [] : ticks(left, right, Math.max(2, Math.floor(width / 90)))) {
      made.push(make("line", {x1: this.across(x), x2: this.across(x), y1: TOP, y2: foot, ...grid}));
      made.push(make("text", {x: this.across(x), y: foot + 15, "text-anchor": "middle"}, short(x)));
    }
    made.push(make("text", {x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle"}, this.data.x));
    return made;
  }

  drawn(line) {
    const colour = `var(--s${line.colour % COLOURS + 1})`, places = line.x.map((x, index) => [x, line.y[index], index]);
    const usable = y => y !== null && (!this.log || y > 0), made = [];
    if (this.scatter) return places.map(([x, y, index]) => make("circle", {cx: this.across(x), cy: this.up(y), r: 2.5,
      fill: `rgb(${shade(this.data.values[index])})`}));
    if (line.low) {
      const kept = places.filter(([, , index]) => usable(line.low[index]) && usable(line.high[index]));
      const side = values => kept.map(([x, , index]) => `${this.across(x)},${this.up(values[index])}`);
      if (kept.length > 1) made.push(make("path", {d: `M${side(line.low).join("L")}L${side(line.high).reverse().join("L")}Z`,
        fill: colour, opacity: 0.16}));
      else if (kept.length) made.push(make("path", {d: `M${side(line.low)}L${side(line.high)}`, stroke: colour}));
    }
    const good = places.filter(([, y]) => usable(y));
    if (!line.points) made.push(make("path", {d: "M" + good.map(([x, y]) => `${this.across(x)},${this.up(y)}`).join("L"), fill: "none",
      stroke: colour, "stroke-width": 1.7, "stroke-dasharray": line.quiet ? "2 4" : line.colour >= COLOURS ? "7 3" : "none"}));
    if (line.points || good.length < 12)
      made.push(...good.map(([x, y]) => make("circle", {cx: this.across(x), cy: this.up(y), r: 3, fill: colour})));
    return made;
  }

  names() {
    const log = this.data.lines.every(line => line.y.every(y => y === null || y > 0)) && !this.scatter;
    const named = this.lines().filter(line => line.label).map(line => {
      const made = button("", () => {
        this.hidden.delete(line.label) || this.hidden.add(line.label);
        this.draw();
      });
      made.className = this.hidden.has(line.label) ? "name off" : "name";
      made.append(make("span", {style: `color: var(--s${line.colour % COLOURS + 1})`}, line.quiet ? "┄ " : "● "), line.label);
      return made;
    });
    const more = log ? [button(this.log ? "linear" : "log", () => { this.log = !this.log; this.draw(); })] : [];
    if (this.zoom) more.push(button("whole", () => { this.zoom = null; this.draw(); }));
    this.legend.replaceChildren(...named, ...more);
  }

  hover(event) {
    const found = this.shown.flatMap(line => line.x.map((x, index) => ({line, index, x, y: line.y[index]}))).filter(each => each.y !== null);
    if (!found.length) return;
    const far = each => (this.across(each.x) - event.offsetX) ** 2 + (this.scatter ? (this.up(each.y) - event.offsetY) ** 2 : 0);
    const near = found.reduce((best, each) => far(each) < far(best) ? each : best);
    const same = this.scatter ? [near] : this.shown.map(line => ({line, x: near.x, y: at(line, near.x)})).filter(each => each.y !== null);
    const head = this.scatter ? this.data.about[near.index] : `${short(near.x)} ${this.data.x}`;
    this.tip.replaceChildren(make("div", {}, head), ...(this.scatter ? [] : same.map(({line, y}) => {
      const row = make("div");
      row.append(make("span", {style: `color: var(--s${line.colour % COLOURS + 1})`}, "● "), `${short(y)} ${line.label}`);
      return row;
    })));
    this.mark.replaceChildren(...same.map(({x, y}) => make("circle", {cx: this.across(x), cy: this.up(y), r: 4, fill: "var(--ink)"})));
    if (this.from != null) this.mark.append(make("rect", {x: Math.min(this.from, event.offsetX), y: TOP,
      width: Math.abs(event.offsetX - this.from), height: HEIGHT - TOP - BOTTOM, fill: "var(--accent)", opacity: 0.15}));
    this.tip.hidden = false;
    const right = event.offsetX > this.host.clientWidth / 2;
    this.tip.style.left = right ? "auto" : `${event.offsetX + 14}px`;
    this.tip.style.right = right ? `${this.host.clientWidth - event.offsetX + 14}px` : "auto";
  }
}

function player(host) {  // cells in the order in which they were first visited, all maps of a section in step
  const steps = JSON.parse(host.dataset.steps), bytes = text => Uint8Array.from(atob(text), each => each.charCodeAt(0));
  const maps = [...host.querySelectorAll("canvas")].map(canvas => ({canvas, first: bytes(canvas.dataset.first), level: bytes(canvas.dataset.level)}));
  const slider = make("input", {type: "range", min: 0, max: steps.length - 1, value: steps.length - 1, "aria-label": "env steps"});
  const label = make("span"), controls = make("div", {class: "controls"});
  let timer = null;
  const show = () => {
    label.textContent = `${Number(steps[slider.value]).toLocaleString("en")} env steps`;
    for (const {canvas, first, level} of maps) {
      const {width, height} = canvas, context = canvas.getContext("2d"), frame = context.createImageData(width, height);
      first.forEach((visit, cell) => {  // cells are counted from below, column by column
        const place = 4 * ((height - 1 - cell % height) * width + Math.floor(cell / height));
        if (visit === WALL) frame.data.set(WALL_COLOUR, place);
        else if (visit <= slider.value) frame.data.set([...shade(0.1 + 0.85 * level[cell] / 255), 255], place);
      });
      context.putImageData(frame, 0, 0);
    }
  };
  const stop = () => { clearInterval(timer); timer = null; play.textContent = "▶ play"; };
  const play = button("▶ play", () => {
    if (timer) return stop();
    if (Number(slider.value) === steps.length - 1) slider.value = 0;
    play.textContent = "❚❚ pause";
    timer = setInterval(() => {
      slider.value = Number(slider.value) + 1;
      show();
      if (Number(slider.value) === steps.length - 1) stop();
    }, 120);
  });
  slider.oninput = () => { stop(); show(); };
  controls.append(play, slider, label);
  host.prepend(controls);
  show();
  let begun = calm;
  new IntersectionObserver(([{isIntersecting}]) => { if (isIntersecting && !begun) { begun = true; play.click(); } }).observe(host);
}

const charts = [...document.querySelectorAll("[data-chart]")].map(host => new Chart(host));
const redraw = () => charts.forEach(chart => chart.draw());
document.querySelectorAll(".player").forEach(player);
document.querySelectorAll(".curves-controls").forEach(host => {
  const smooth = make("input", {type: "range", min: 0, max: 0.98, step: 0.02, value: 0, "aria-label": "smoothing"});
  smooth.oninput = () => { settings.smooth = Number(smooth.value); redraw(); };
  host.append(make("span", {}, "Smoothing"), smooth);
  const groups = charts.map(chart => chart.data.lines.map(line => line.group).filter(Boolean));
  if (groups.some(names => new Set(names).size < names.length)) {
    const box = make("input", {type: "checkbox"}), label = make("label");
    box.onchange = () => { settings.together = box.checked; redraw(); };
    label.append(box, " mean over seeds, shaded from least to greatest");
    host.append(label);
  }
});
const seen = new IntersectionObserver(entries => entries.forEach(({target, isIntersecting}) => {
  if (isIntersecting && !calm) target.play().catch(() => {}); else if (!isIntersecting) target.pause();
}));
document.querySelectorAll("video").forEach(video => { video.muted = true; seen.observe(video); });
