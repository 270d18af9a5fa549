// One chart: curves of a metric over steps, as SVG. `page` (page.js) has the state of all charts. A chart without a metric of its
// own shows those of the controls.
const MARGIN = {left: 66, right: 16, top: 10, bottom: 34};

class Chart {
  constructor(page, host) {
    Object.assign(this, {page, host, metric: host.dataset.metric, height: host.dataset.metric ? 210 : 380, averages: new Map()});
    [this.caption, this.svg, this.legend] = host.children;
    this.listen();
  }

  // Returns the curves to draw: {curve, average, run, name, style}.
  lines() {
    const {data, state} = this.page, lines = [];
    this.metrics.forEach((metric, place) => data.series[metric].forEach((curve, run) => {
      if (!curve || state.hidden.has(run)) return;
      const name = [data.runs.length > 1 && data.runs[run], this.metrics.length > 1 && metric].filter(Boolean).join(" ") || metric;
      lines.push({curve, average: this.averageOf(curve), run, name, style: `c${run % 6}${place ? " dashed" : ""}`});
    }));
    return lines;
  }

  // Returns the smoothed curve; without smoothing, the means of a long curve, or null.
  averageOf(curve) {
    const weight = this.page.state.smooth, kept = this.averages.get(curve);
    if (!kept || kept.weight !== weight) this.averages.set(curve, smoothed(curve, weight));
    return weight || curve.m ? this.averages.get(curve) : null;
  }

  isShown(value) { return value !== null && Math.abs(value) <= 1e300 && (value > 1e-300 || !this.isLog); }

  // Returns the range of the values within the steps of `range`, with a margin; null if there are none.
  bounds(range) {
    let low = Infinity, high = -Infinity;
    for (const {curve} of this.shown) {
      for (let i = lowerBound(curve.x, range[0]); i < curve.x.length && curve.x[i] <= range[1]; i++) {
        if (this.isShown(curve.y[i])) [low, high] = [Math.min(low, curve.y[i]), Math.max(high, curve.y[i])];
      }
    }
    if (low > high) return null;
    const factor = low === high ? 2 : 10 ** (0.04 * (Math.log10(high) - Math.log10(low)));
    if (this.isLog) return [low / factor, high * factor];
    const pad = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
    return [low - pad, high + pad];
  }

  path(curve, range) {
    const last = Math.min(curve.x.length, lowerBound(curve.x, range[1]) + 2);
    let text = "", command = "M";
    for (let i = Math.max(0, lowerBound(curve.x, range[0]) - 1); i < last; i++) {
      const isShown = this.isShown(curve.y[i]);
      if (isShown) text += command + this.toX(curve.x[i]).toFixed(1) + " " + this.toY(curve.y[i]).toFixed(1);
      if (isShown && command === "M") text += "h0"; // a point between gaps is a dot: the round end of a line
      command = isShown ? "L" : "M";
    }
    return text;
  }

  draw() {
    const {page, svg, height} = this, width = Math.max(240, this.host.clientWidth), range = page.range();
    this.metrics = this.metric ? [this.metric] : [page.state.metric, page.state.also].filter(Boolean);
    this.isLog = page.state.log && !this.metric;
    this.shown = this.lines();
    this.caption.textContent = this.metrics.join(" and ");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("aria-label", `${this.metrics.join(" and ")} over steps: arrow keys move, + and - zoom, Escape goes back`);
    const bounds = this.bounds(range), right = width - MARGIN.right, bottom = height - MARGIN.bottom, id = `clip-${this.metric || ""}`;
    this.toX = bounds && scale(...range, MARGIN.left, right);
    this.toY = bounds && scale(...bounds, bottom, MARGIN.top, this.isLog);
    svg.innerHTML = bounds ? this.axes(right, bottom, range, bounds)
      + `<clipPath id="${id}"><rect x="${MARGIN.left - 2}" width="${right - MARGIN.left + 4}" height="${bottom + 2}"/></clipPath>`
      + `<g clip-path="url(#${id})">${this.curves(range)}</g><g class="cursor"></g>`
      + `<rect class="drag" width="0" height="${bottom}"/>`
      : `<text x="${width / 2}" y="${height / 2}" text-anchor="middle">no ${this.isLog ? "positive " : ""}value to show here</text>`;
    this.drawCursor();
  }

  curves(range) {
    const drawn = (style, curve) => `<path class="curve ${style}" d="${this.path(curve, range)}"/>`;
    const raw = this.shown.map(({curve, average, style}) => drawn(average ? "faint " + style : style, curve));
    return raw.join("") + this.shown.map(({average, style}) => average ? drawn(style, average) : "").join("");
  }

  axes(right, bottom, range, bounds) {
    const ys = (this.isLog ? logTicks(...bounds) : linearTicks(...bounds, this.height / 50)).map(tick => {
      const y = this.toY(tick).toFixed(1), label = `<text x="${MARGIN.left - 8}" y="${y}" dy="4" text-anchor="end">${shown(tick)}</text>`;
      return `<path class="grid" d="M${MARGIN.left} ${y}H${right}"/>` + label;
    });
    const xs = linearTicks(...range, Math.min(10, right / 90)).filter(tick => tick % 1 === 0).map(tick => {
      const x = this.toX(tick).toFixed(1), label = `<text x="${x}" y="${bottom + 16}" text-anchor="middle">${tick}</text>`;
      return `<path class="grid" d="M${x} ${MARGIN.top}V${bottom}"/>` + label;
    });
    return ys.join("") + xs.join("") + `<path class="axis" d="M${MARGIN.left} ${MARGIN.top}V${bottom}H${right}"/>`
      + `<text x="${right}" y="${bottom + 30}" text-anchor="end">step</text>`;
  }

  // Draws the cursor. Writes the values at it, or else the last values, into the legend.
  drawCursor() {
    const at = this.page.cursor, make = (tag, values) => Object.assign(document.createElement(tag), values), marks = [];
    this.legend.replaceChildren(make("span", {textContent: at === null ? "last" : `step ${Math.round(at)}`}));
    for (const {curve, average, name, style} of this.shown) {
      const i = at === null ? curve.x.length - 1 : nearest(curve, at), value = curve.y[i], item = make("span");
      item.append(make("i", {className: `swatch ${style}`}), name + " ", make("b", {textContent: shown(value)}));
      if (average) item.append(` (${shown(average.y[nearest(average, curve.x[i])])})`);
      this.legend.append(item);
      if (at === null || !this.toX || !this.isShown(value)) continue;
      marks.push(`<circle class="${style}" cx="${this.toX(curve.x[i]).toFixed(1)}" cy="${this.toY(value).toFixed(1)}" r="4"/>`);
    }
    if (!this.toX) return;
    const line = at === null ? "" : `<path d="M${this.toX(at).toFixed(1)} ${MARGIN.top}V${this.height - MARGIN.bottom}"/>`;
    this.svg.querySelector(".cursor").innerHTML = line + marks.join("");
  }

  // Returns the step below a pointer.
  stepOf(event) {
    const box = this.svg.getBoundingClientRect(), {width} = this.svg.viewBox.baseVal, [from, to] = this.page.range();
    const part = ((event.clientX - box.left) * width / box.width - MARGIN.left) / (width - MARGIN.left - MARGIN.right);
    return from + Math.min(1, Math.max(0, part)) * (to - from);
  }

  listen() {
    const {svg, page} = this, ends = event => [begin, this.stepOf(event)].sort((a, b) => a - b);
    let begin = null;
    svg.addEventListener("pointermove", event => {
      if (!this.toX) return;
      page.moveCursor(this.stepOf(event));
      if (begin === null) return;
      const [low, high] = ends(event).map(this.toX), drag = svg.querySelector(".drag");
      Object.entries({x: low, width: high - low}).forEach(([name, value]) => drag.setAttribute(name, value));
    });
    svg.addEventListener("pointerdown", event => {
      if (event.button !== 0 || !this.toX) return;
      begin = this.stepOf(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointerup", event => {
      if (begin === null) return;
      const [low, high] = ends(event);
      begin = null;
      if (this.toX(high) - this.toX(low) > 5) page.change({from: low, to: high}); else this.draw();
    });
    Object.assign(svg, {onpointercancel: () => { begin = null; this.draw(); }, onpointerleave: () => page.moveCursor(null)});
    svg.addEventListener("dblclick", () => page.change({from: null, to: null}));
    svg.addEventListener("keydown", event => page.press(event, this) && event.preventDefault());
  }
}
