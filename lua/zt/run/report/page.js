// The page: its state, which the address keeps behind "#" (metric, also, log, smooth, from, to, hide, at), and its controls.
class Page {
  constructor(data) {
    Object.assign(this, {data, cursor: null, state: {}, charts: []});
    const xs = Object.values(data.series).flat().filter(Boolean).map(curve => [curve.x[0], curve.x[curve.x.length - 1]]);
    this.extent = [Math.min(...xs.map(x => x[0])), Math.max(...xs.map(x => x[1]))];
    if (this.extent[0] === this.extent[1]) this.extent = [this.extent[0] - 0.5, this.extent[1] + 0.5];
    this.read();
    this.build(document.getElementById("plots"));
    this.draw();
    addEventListener("hashchange", () => { this.read(); this.show(); this.draw(); });
    let width = innerWidth;
    addEventListener("resize", () => { if (width !== innerWidth) { width = innerWidth; this.draw(); } });
  }

  read() {
    const given = new URLSearchParams(location.hash.slice(1)), {metrics} = this.data;
    const number = name => given.has(name) && given.get(name) !== "" && isFinite(given.get(name)) ? Number(given.get(name)) : null;
    const metric = metrics.includes(given.get("metric")) ? given.get("metric") : metrics[0];
    const also = given.has("also") ? given.get("also") : metric === "loss" ? "validation_loss" : "";
    const from = number("from"), to = number("to"), isRange = from !== null && to !== null && from < to;
    this.state = {
      metric, also: metrics.includes(also) && also !== metric ? also : "", log: given.get("log") === "1",
      smooth: Math.min(0.99, Math.max(0, number("smooth") || 0)), from: isRange ? from : null, to: isRange ? to : null,
      hidden: new Set((given.get("hide") || "").split(",").filter(Boolean).map(Number)),
    };
    this.cursor = number("at");
  }

  write() {
    const {metric, also, log, smooth, from, to, hidden} = this.state, words = new URLSearchParams({metric, also});
    if (log) words.set("log", "1");
    if (smooth) words.set("smooth", smooth);
    if (from !== null) { words.set("from", +from.toFixed(2)); words.set("to", +to.toFixed(2)); }
    if (hidden.size) words.set("hide", [...hidden].join(","));
    history.replaceState(null, "", "#" + words);
  }

  change(values) {
    Object.assign(this.state, values);
    this.write();
    this.show();
    this.draw();
  }

  range() { return this.state.from === null ? this.extent : [this.state.from, this.state.to]; }
  zoom(from, to) { this.change({from, to}); }
  draw() { this.charts.forEach(chart => chart.draw()); }
  moveCursor(at) {
    this.cursor = at;
    this.charts.forEach(chart => chart.drawCursor());
  }

  // Zooms by a factor around the cursor, or around the middle.
  zoomBy(factor) {
    const [from, to] = this.range(), middle = this.cursor === null ? (from + to) / 2 : this.cursor, [first, last] = this.extent;
    const low = Math.max(first, middle - (middle - from) * factor), high = Math.min(last, middle + (to - middle) * factor);
    if (low === first && high === last) this.zoom(null, null); else if (high - low >= 2) this.zoom(low, high);
  }

  // Returns whether a key that was pressed on a chart does something.
  press(event, chart) {
    if (event.ctrlKey || event.metaKey || event.altKey || !chart.shownLines.length) return false;
    const {x} = chart.shownLines[0].curve, [from, to] = this.range(), first = lowerBound(x, from), last = lowerBound(x, to + 1e-9) - 1;
    const here = this.cursor === null ? first : nearest(chart.shownLines[0].curve, this.cursor), far = event.shiftKey ? 10 : 1;
    const moveTo = i => this.moveCursor(x[Math.min(last, Math.max(first, i))]);
    const keys = {
      ArrowRight: () => moveTo(this.cursor === null ? first : here + far), ArrowLeft: () => moveTo(this.cursor === null ? last : here - far),
      Home: () => moveTo(first), End: () => moveTo(last), "+": () => this.zoomBy(0.5), "=": () => this.zoomBy(0.5),
      "-": () => this.zoomBy(2), Escape: () => { this.moveCursor(null); this.zoom(null, null); },
    };
    if (!keys[event.key]) return false;
    keys[event.key]();
    return true;
  }

  build(host) {
    const {data} = this, choice = (id, empty) => `<select id="${id}">${empty ? `<option value="">nothing</option>` : ""}</select>`;
    host.innerHTML = `<form class="controls"><label>metric ${choice("metric")}</label><label>and ${choice("also", true)}</label>`
      + '<label><input type="checkbox" id="log"> log scale</label><label>smoothing <input type="range" id="smooth" min="0" max="0.99"'
      + ' step="0.01"><output id="smooth-value"></output></label><button type="button" id="reset">reset zoom</button>'
      + '<span id="shown-runs"></span></form><p class="hint">Drag over steps to zoom, click twice to go back. On a chart, arrow keys'
      + ' move the cursor, + and − zoom, Escape goes back.</p><figure class="chart"></figure><div class="charts"></div>';
    for (const id of ["metric", "also"]) {
      const select = host.querySelector("#" + id);
      data.metrics.forEach(name => select.append(new Option(name, name)));
      select.addEventListener("change", () => this.change(id === "metric" ? {metric: select.value, also: ""} : {also: select.value}));
    }
    host.querySelector("form").addEventListener("submit", event => event.preventDefault());
    host.querySelector("#log").addEventListener("change", event => this.change({log: event.target.checked}));
    host.querySelector("#smooth").addEventListener("input", event => this.change({smooth: Number(event.target.value)}));
    host.querySelector("#reset").addEventListener("click", () => this.zoom(null, null));
    if (data.runs.length > 1) data.runs.forEach((name, run) => this.buildToggle(host.querySelector("#shown-runs"), name, run));
    this.charts.push(new Chart(this, host.querySelector(".chart"), null, 380));
    for (const name of data.fixed) {
      const figure = host.querySelector(".charts").appendChild(Object.assign(document.createElement("figure"), {className: "chart"}));
      this.charts.push(new Chart(this, figure, name, 210));
    }
    this.show();
  }

  buildToggle(host, name, run) {
    const label = host.appendChild(document.createElement("label")), box = document.createElement("input");
    Object.assign(box, {type: "checkbox", className: "toggle"});
    box.addEventListener("change", () => {
      const hidden = new Set(this.state.hidden);
      if (box.checked) hidden.delete(run); else hidden.add(run);
      this.change({hidden});
    });
    label.append(box, Object.assign(document.createElement("i"), {className: `swatch c${run % 6}`}), name);
  }

  // Shows the state in the controls.
  show() {
    const {metric, also, log, smooth, from, hidden} = this.state, find = id => document.getElementById(id);
    find("metric").value = metric;
    find("also").value = also;
    find("log").checked = log;
    find("smooth").value = smooth;
    find("smooth-value").textContent = smooth.toFixed(2);
    find("reset").disabled = from === null;
    document.querySelectorAll(".toggle").forEach((box, run) => { box.checked = !hidden.has(run); });
  }
}

// Parts that were open stay open when the page loads again.
function keepOpenParts() {
  for (const part of document.querySelectorAll("details")) {
    const key = location.pathname + "#" + part.id;
    if (sessionStorage.getItem(key)) part.open = true;
    part.addEventListener("toggle", () => part.open ? sessionStorage.setItem(key, "1") : sessionStorage.removeItem(key));
  }
}

// Loads a page again that is watched. A page that is not written again within three times that time is no longer watched.
function follow({reload, written}) {
  if (!reload) return;
  const isOld = Date.now() / 1000 - written > 3 * reload + 30;
  if (isOld) document.getElementById("watched").textContent = "it was watched; it is no longer";
  else setTimeout(() => location.reload(), 1000 * reload);
}

const data = JSON.parse(document.getElementById("data").textContent);
if (data.metrics.length) new Page(data);
keepOpenParts();
follow(data);
