// One chart: curves of a metric over steps, as SVG. `page` (page.js) has the state that all charts share.
const MARGIN = {left: 66, right: 16, top: 10, bottom: 34};

class Chart {
  constructor(page, host, metric, height) {
    Object.assign(this, {page, host, metric, height, cache: new Map()});
    host.innerHTML = '<figcaption></figcaption><svg tabindex="0" role="application"></svg><output class="legend"></output>';
    [this.caption, this.svg, this.legend] = host.children;
    this.legend.setAttribute("aria-live", "polite");
    this.listen();
  }

  // Returns the curves to draw: {curve, average, run, name, isDashed}.
  lines() {
    const {data, state} = this.page, metrics = this.metric ? [this.metric] : [state.metric, state.also].filter(Boolean), lines = [];
    metrics.forEach((metric, place) => data.series[metric].forEach((curve, run) => {
      if (!curve || state.hidden.has(run)) return;
      const name = [data.runs.length > 1 && data.runs[run], metrics.length > 1 && metric].filter(Boolean).join(" ") || metric;
      lines.push({curve, average: this.averageOf(curve), run, name, isDashed: place > 0});
    }));
    return lines;
  }

  averageOf(curve) {
    const weight = this.page.state.smooth;
    if (!weight) return null;
    const kept = this.cache.get(curve);
    if (kept && kept.weight === weight) return kept;
    this.cache.set(curve, Object.assign(smoothed(curve, weight), {weight}));
    return this.cache.get(curve);
  }

  // Returns the range of the values that are seen; null if there are none.
  bounds(lines, [from, to]) {
    let low = Infinity, high = -Infinity;
    for (const {curve} of lines) {
      for (let i = lowerBound(curve.x, from); i < curve.x.length && curve.x[i] <= to; i++) {
        const value = curve.y[i];
        if (value === null || this.isLog && value <= 0) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
    if (low > high) return null;
    if (this.isLog) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
    const pad = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
    return [low - pad, high + pad];
  }

  path(curve, [from, to]) {
    let text = "", command = "M";
    const last = Math.min(curve.x.length, lowerBound(curve.x, to) + 2);
    for (let i = Math.max(0, lowerBound(curve.x, from) - 1); i < last; i++) {
      const value = curve.y[i];
      if (value === null || this.isLog && value <= 0) { command = "M"; continue; }
      const place = this.toX(curve.x[i]).toFixed(1) + " " + this.toY(value).toFixed(1);
      text += command + place + (command === "M" ? "h0" : ""); // a point alone is a dot: the line's round end
      command = "L";
    }
    return text;
  }

  draw() {
    const {page, svg} = this, width = Math.max(240, this.host.clientWidth), {height} = this, range = page.range();
    this.isLog = page.state.log && !this.metric;
    this.shownLines = this.lines();
    const bounds = this.bounds(this.shownLines, range);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.caption.textContent = this.metric || [page.state.metric, page.state.also].filter(Boolean).join(" and ");
    svg.setAttribute("aria-label", `${this.caption.textContent} over steps; arrow keys move the cursor, + and - zoom, Escape resets`);
    if (!bounds) {
      const why = this.isLog ? "no positive value to show on a log scale" : "no value to show here";
      svg.innerHTML = `<text x="${width / 2}" y="${height / 2}" text-anchor="middle">${why}</text>`;
      this.toX = null;
      return this.drawCursor();
    }
    this.toX = scale(range[0], range[1], MARGIN.left, width - MARGIN.right);
    this.toY = scale(bounds[0], bounds[1], height - MARGIN.bottom, MARGIN.top, this.isLog);
    this.toStep = x => range[0] + (x - MARGIN.left) / (width - MARGIN.right - MARGIN.left) * (range[1] - range[0]);
    const id = "clip-" + (this.metric || "").replace(/\W/g, "_");
    svg.innerHTML = this.axes(width, height, range, bounds)
      + `<clipPath id="${id}"><rect x="${MARGIN.left}" y="${MARGIN.top - 4}" width="${width - MARGIN.left - MARGIN.right}"`
      + ` height="${height - MARGIN.top - MARGIN.bottom + 8}"/></clipPath><g clip-path="url(#${id})">`
      + this.shownLines.map(line => this.curves(line, range)).join("") + '</g><g class="cursor"></g><rect class="drag" y="0" width="0"'
      + ` height="${height - MARGIN.bottom}"/>`;
    this.drawCursor();
  }

  curves(line, range) {
    const style = `c${line.run % 6}${line.isDashed ? " dashed" : ""}`, raw = this.path(line.curve, range);
    if (!line.average) return `<path class="curve ${style}" d="${raw}"/>`;
    return `<path class="curve faint ${style}" d="${raw}"/><path class="curve ${style}" d="${this.path(line.average, range)}"/>`;
  }

  axes(width, height, range, bounds) {
    const right = width - MARGIN.right, bottom = height - MARGIN.bottom;
    const ys = (this.isLog ? logTicks(...bounds) : linearTicks(...bounds, height / 60)).map(tick => {
      const y = this.toY(tick).toFixed(1);
      return `<path class="grid" d="M${MARGIN.left} ${y}H${right}"/><text x="${MARGIN.left - 8}" y="${y}" dy="4" text-anchor="end">${shown(tick)}</text>`;
    });
    const xs = linearTicks(range[0], range[1], Math.min(10, width / 110)).filter(tick => tick % 1 === 0).map(tick => {
      const x = this.toX(tick).toFixed(1);
      return `<path class="grid" d="M${x} ${MARGIN.top}V${bottom}"/><text x="${x}" y="${bottom + 16}" text-anchor="middle">${tick}</text>`;
    });
    return ys.join("") + xs.join("") + `<path class="axis" d="M${MARGIN.left} ${MARGIN.top}V${bottom}H${right}"/>`
      + `<text class="name" x="${right}" y="${height - 4}" text-anchor="end">step</text>`;
  }

  // Draws the cursor, and writes the values below it, or the last values, into the legend.
  drawCursor() {
    const at = this.page.cursor, marks = [], {legend} = this;
    legend.replaceChildren();
    const step = legend.appendChild(document.createElement("span"));
    step.textContent = at === null ? "last" : `step ${Math.round(at)}`;
    for (const {curve, average, run, name, isDashed} of this.shownLines) {
      const i = at === null ? curve.x.length - 1 : nearest(curve, at), value = curve.y[i];
      const item = legend.appendChild(document.createElement("span"));
      item.append(Object.assign(document.createElement("i"), {className: `swatch c${run % 6}${isDashed ? " dashed" : ""}`}), name + " ",
                  Object.assign(document.createElement("b"), {textContent: shown(value)}));
      if (average) item.append(` (${shown(average.y[nearest(average, curve.x[i])])})`);
      if (at === null || !this.toX || value === null || this.isLog && value <= 0) continue;
      marks.push(`<circle class="c${run % 6}" cx="${this.toX(curve.x[i]).toFixed(1)}" cy="${this.toY(value).toFixed(1)}" r="4"/>`);
    }
    const group = this.svg.querySelector(".cursor");
    if (!group) return;
    const x = at === null ? 0 : this.toX(at).toFixed(1);
    group.innerHTML = at === null ? "" : `<path d="M${x} ${MARGIN.top}V${this.height - MARGIN.bottom}"/>` + marks.join("");
  }

  // Returns the step below a pointer.
  stepOf(event) {
    const box = this.svg.getBoundingClientRect(), [from, to] = this.page.range();
    return Math.min(to, Math.max(from, this.toStep((event.clientX - box.left) * this.svg.viewBox.baseVal.width / box.width)));
  }

  listen() {
    const {svg, page} = this;
    let begin = null;
    svg.addEventListener("pointermove", event => {
      if (!this.toX) return;
      page.moveCursor(this.stepOf(event));
      if (begin === null) return;
      const [low, high] = [begin, this.stepOf(event)].sort((a, b) => a - b).map(this.toX), drag = svg.querySelector(".drag");
      drag.setAttribute("x", low);
      drag.setAttribute("width", high - low);
    });
    svg.addEventListener("pointerdown", event => {
      if (event.button !== 0 || !this.toX) return;
      begin = this.stepOf(event);
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointerup", event => {
      if (begin === null) return;
      const [low, high] = [begin, this.stepOf(event)].sort((a, b) => a - b);
      begin = null;
      if (this.toX(high) - this.toX(low) > 5) page.zoom(low, high); else svg.querySelector(".drag").setAttribute("width", 0);
    });
    svg.addEventListener("pointercancel", () => { begin = null; this.draw(); });
    svg.addEventListener("pointerleave", () => { if (begin === null) page.moveCursor(null); });
    svg.addEventListener("dblclick", () => page.zoom(null, null));
    svg.addEventListener("keydown", event => { if (page.press(event, this)) event.preventDefault(); });
  }
}
