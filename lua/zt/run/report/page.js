// The page: its state, which the address keeps after "#" (metric, also, log, smooth, from, to, hide; at), and its controls.
class Page {
  constructor(data) {
    const xs = Object.values(data.series).flat().filter(Boolean).map(curve => curve.x);
    const first = Math.min(...xs.map(x => x[0])), last = Math.max(...xs.map(x => x[x.length - 1]));
    Object.assign(this, {data, extent: first < last ? [first, last] : [first - 0.5, last + 0.5], form: document.getElementById("controls")});
    this.boxes = [...this.form.querySelectorAll("[name=run]")];
    this.charts = [...document.querySelectorAll(".chart")].map(host => new Chart(this, host));
    this.form.addEventListener("input", () => this.take());
    this.form.reset_zoom.addEventListener("click", () => this.change({from: null, to: null}));
    Object.assign(window, {onhashchange: () => this.read(), onresize: () => this.draw()});
    this.read();
  }

  // Reads the state from the address. Leaves out what the page does not have.
  read() {
    const given = new URLSearchParams(location.hash.slice(1)), {metrics} = this.data;
    const number = name => given.get(name) && isFinite(given.get(name)) ? Number(given.get(name)) : null;
    const metric = metrics.includes(given.get("metric")) ? given.get("metric") : metrics[0];
    const also = given.has("also") ? given.get("also") : metric === "loss" ? "validation_loss" : "";
    const from = number("from"), to = number("to"), isRange = from !== null && to !== null && from < to;
    this.state = {
      metric, also: metrics.includes(also) && also !== metric ? also : "", log: given.get("log") === "1",
      smooth: Math.min(0.99, Math.max(0, number("smooth"))), from: isRange ? from : null, to: isRange ? to : null,
      hidden: new Set((given.get("hide") || "").split(",").filter(Boolean).map(Number)),
    };
    this.cursor = number("at") === null ? null : Math.min(this.extent[1], Math.max(this.extent[0], number("at")));
    this.show();
  }
  // Takes the state of the controls. Another metric is shown alone.
  take() {
    const {metric, also, log, smooth} = this.form, hidden = this.boxes.filter(box => !box.checked).map(box => Number(box.value));
    const second = metric.value === this.state.metric && also.value !== metric.value ? also.value : "";
    this.change({metric: metric.value, also: second, log: log.checked, smooth: Number(smooth.value), hidden: new Set(hidden)});
  }

  // Changes the state, and the address with it.
  change(values) {
    const {metric, also, log, smooth, from, to, hidden} = Object.assign(this.state, values);
    const words = new URLSearchParams({metric, also, log: log ? 1 : 0, smooth, hide: [...hidden].join(",")});
    if (from !== null) [["from", from], ["to", to]].forEach(([name, step]) => words.set(name, +step.toFixed(2)));
    history.replaceState(null, "", "#" + words);
    this.show();
  }

  // Shows the state in the controls and the charts.
  show() {
    const {metric, also, log, smooth, from, hidden} = this.state, {form} = this;
    [form.metric.value, form.also.value, form.log.checked, form.smooth.value] = [metric, also, log, smooth];
    form.smooth_value.value = smooth.toFixed(2);
    form.reset_zoom.disabled = from === null;
    this.boxes.forEach(box => { box.checked = !hidden.has(Number(box.value)); });
    this.draw();
  }

  range() { return this.state.from === null ? this.extent : [this.state.from, this.state.to]; }
  draw() { this.charts.forEach(chart => chart.draw()); }
  moveCursor(at) { this.cursor = at; this.charts.forEach(chart => chart.drawCursor()); }

  // Zooms by a factor around the cursor, or around the middle.
  zoomBy(factor) {
    const [from, to] = this.range(), [first, last] = this.extent, middle = this.cursor === null ? (from + to) / 2 : this.cursor;
    const low = Math.max(first, middle - (middle - from) * factor), high = Math.min(last, middle + (to - middle) * factor);
    if (low === first && high === last) this.change({from: null, to: null}); else if (high - low >= 1) this.change({from: low, to: high});
  }

  // Returns whether a key that was pressed on a chart does something.
  press(event, {shown}) {
    if (event.ctrlKey || event.metaKey || event.altKey || !shown.length) return false;
    const {curve} = shown[0], [from, to] = this.range(), first = lowerBound(curve.x, from), last = lowerBound(curve.x, to + 1e-9) - 1;
    const moveTo = i => this.moveCursor(curve.x[Math.min(last, Math.max(first, i))]);
    const move = (start, by) => moveTo(this.cursor === null ? start : nearest(curve, this.cursor) + by * (event.shiftKey ? 10 : 1));
    const keys = {
      ArrowRight: () => move(first, 1), ArrowLeft: () => move(last, -1), Home: () => moveTo(first), End: () => moveTo(last),
      "+": () => this.zoomBy(0.5), "=": () => this.zoomBy(0.5), "-": () => this.zoomBy(2),
      Escape: () => { this.moveCursor(null); this.change({from: null, to: null}); },
    };
    return event.key in keys && (keys[event.key](), true);
  }
}

// Parts that were open stay open when the page loads again.
for (const part of document.querySelectorAll("details")) {
  const key = location.pathname + "#" + part.id;
  part.open = sessionStorage.getItem(key) === "1";
  part.addEventListener("toggle", () => sessionStorage.setItem(key, part.open ? "1" : ""));
}
const data = JSON.parse(document.getElementById("data").textContent);
if (data.metrics.length) new Page(data);
// Loads a page again that is watched. A page that was not written again within three times that time is no longer watched.
if (data.reload && Date.now() / 1000 - data.written < 3 * data.reload + 30) setTimeout(() => location.reload(), 1000 * data.reload);
else if (data.reload) document.getElementById("watched").textContent = "it was watched, which has ended";
