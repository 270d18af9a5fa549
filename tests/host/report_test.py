"""`ztoolkit report` in a browser: what its page draws and does. Ends with status 77, which ctest shows as skipped, without Chromium."""

import json
import re
import sys
import unittest

import browser
from host import HostTest, ztoolkit

STEPS = 40
SCRIPT = """
local zt = require "zt"
for place, name in ipairs{"first", "second"} do
  local run = zt.run{name = name, folder = arg[1], options = {place = place, evil = "<img src=x onerror='notes.evil = 1'>"}}
  for step = 0, 39 do
    run:log(step, {loss = step == 20 and 0 / 0 or place * 2 ^ (-step / 4), validation_loss = step % 10 == 9 and place * 3 or nil,
                   lr = 0.1, ["<img src=x onerror='notes.evil = 2'>"] = step, sample = "<img src=x onerror='notes.evil = 3'>"})
  end
  run:finish()
end
"""
CLOSE = 0.06  # pixels: the page rounds places to tenths


def loss(step, place=1):
    return place * 2 ** (-step / 4)


def legends(document):
    """Returns the texts of the charts' legends."""
    return [re.sub("<[^>]*>", " ", legend).split() for legend in re.findall(r'<output class="legend"[^>]*>(.*?)</output>', document)]


def curves(document, style):
    """Returns the curves of a style in the first chart: lists of parts without gaps, each a list of places (x, y)."""
    chart = re.search(r"<svg.*?</svg>", document, re.S)[0]
    paths = re.findall(rf'<path class="curve {style}" d="([^"]*)"', chart)
    return [[[tuple(map(float, place.split())) for place in part.replace("h0", "").split("L")] for part in path.split("M")[1:]]
            for path in paths]


class Report(HostTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        holder = cls("make")
        holder.setUp()
        cls.addClassCleanup(holder.doCleanups)
        cls.pages = {}
        made = holder.run_script(SCRIPT, holder.folder)
        assert made.status == 0, made.err
        for name, runs in (("one", ["first"]), ("two", ["first", "second"])):
            cls.pages[name] = holder.folder / f"{name}.html"
            written = ztoolkit("report", *[holder.folder / run for run in runs], "--out", cls.pages[name])
            assert written.status == 0, written.err

    def make(self):
        """Names the case that holds the folder of all."""

    def drive(self, page, script, fragment="", **how):
        """Returns the document and the notes of a page whose script is followed by one of the test. It must make no errors."""
        document = browser.document(browser.driven(page, script), fragment, **how)
        notes = json.loads(browser.notes_of(document))
        self.assertEqual(notes["errors"], [])
        return document, notes

    def assert_straight(self, places, values):
        """Fails unless the y of all places is a linear function of the values."""
        slope = (places[-1][1] - places[0][1]) / (values[-1] - values[0])
        for (_, y), value in zip(places, values):
            self.assertAlmostEqual(y, places[0][1] + slope * (value - values[0]), delta=2 * CLOSE)

    def test_curves_and_their_gap(self):
        document, notes = self.drive(self.pages["one"], "")
        self.assertNotIn("evil", notes)
        (curve,) = curves(document, "c0")
        self.assertEqual([len(part) for part in curve], [20, 19])  # without step 20
        places = curve[0] + curve[1]
        steps = [step for step in range(STEPS) if step != 20]
        self.assert_straight(places, [loss(step) for step in steps])
        self.assert_straight([(0, x) for x, _ in places], steps)
        self.assertEqual(len(curves(document, "c0 dashed")[0][0]), 4)  # the validation loss
        self.assertEqual(legends(document)[0], ["last", "loss", "0.0011613", "validation_loss", "3"])

    def test_a_log_scale_makes_the_decay_straight(self):
        document = browser.document(self.pages["one"], "metric=loss&also=&log=1")
        (curve,) = curves(document, "c0")
        self.assert_straight(curve[0], list(range(20)))
        self.assertIn(">0.1</text>", document)

    def test_zoom_cursor_and_hidden_runs(self):
        document = browser.document(self.pages["two"], "metric=loss&also=&from=4&to=8&at=6&hide=0")
        self.assertEqual(curves(document, "c0"), [])
        (curve,) = curves(document, "c1")
        self.assertEqual(len(curve[0]), 7)  # with the points on both sides, which leave the chart
        self.assertAlmostEqual(curve[0][1][0], 66, delta=CLOSE)
        self.assertEqual(legends(document)[0], ["step", "6", "second", "0.70711"])
        self.assertEqual(re.findall(r'<circle class="c1" cx="([^"]*)"', document)[0], f"{curve[0][3][0]:.1f}")
        self.assertEqual(legends(document)[1][:2], ["step", "6"])  # the charts share their cursor

    def test_smoothing(self):
        document = browser.document(self.pages["one"], "metric=loss&also=&smooth=0.9&at=12")
        total = weight = 0
        for step in range(13):
            total, weight = 0.9 * total + 0.1 * loss(step), 0.9 * weight + 0.1
        self.assertEqual(legends(document)[0], ["step", "12", "loss", "0.125", f"({total / weight:.5g})"])
        self.assertEqual(len(curves(document, "faint c0")), 1)
        self.assertEqual(len(curves(document, "c0")), 1)

    def test_what_the_address_has_wrong(self):
        document, _ = self.drive(self.pages["one"], "", "metric=none&also=none&smooth=x&from=9&to=2&at=1e9&hide=7")
        self.assertEqual(legends(document)[0][:3], ["step", "39", "loss"])

    def test_keys(self):
        script = """
            const chart = document.querySelector(".chart svg"), seen = [];
            const press = (key, more) => {
              chart.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, ...more}));
              seen.push(document.querySelector(".legend span").textContent);
            };
            chart.focus();
            for (const key of ["ArrowRight", "ArrowRight", "End", "ArrowLeft", "Home"]) press(key);
            press("ArrowRight", {shiftKey: true});
            press("+");
            notes.zoomed = location.hash;
            press("-");
            notes.back = location.hash;
            press("+");
            press("Escape");
            Object.assign(notes, {seen, end: location.hash, isFocused: document.activeElement === chart});"""
        _, notes = self.drive(self.pages["one"], script)
        self.assertEqual(notes["seen"], ["step 0", "step 1", "step 39", "step 38", "step 0", "step 10", "step 10", "step 10", "step 10", "last"])
        self.assertIn("from=5&to=24.5", notes["zoomed"])
        for place in ("back", "end"):
            self.assertNotIn("from", notes[place])
        self.assertTrue(notes["isFocused"])

    def test_drag_and_controls(self):
        script = """
            const chart = document.querySelector(".chart svg"), form = document.getElementById("controls");
            const box = chart.getBoundingClientRect(), width = box.width - 82;
            chart.setPointerCapture = () => {};  // an event that a script makes has no pointer
            const point = (name, part) => chart.dispatchEvent(new PointerEvent(name, {
              clientX: box.left + 66 + part * width, clientY: box.top + 99, button: 0, bubbles: true}));
            point("pointerdown", 0.25); point("pointermove", 0.5);
            notes.drag = Number(chart.querySelector(".drag").getAttribute("width")) / width;
            point("pointerup", 0.75);
            notes.zoomed = location.hash;
            form.reset_zoom.click();
            notes.reset = location.hash;
            form.metric.value = "lr"; form.log.checked = true; form.smooth.value = 0.5; form.run[0].checked = false;
            form.metric.dispatchEvent(new Event("input", {bubbles: true}));
            notes.chosen = location.hash;
            notes.caption = document.querySelector(".chart figcaption").textContent;"""
        _, notes = self.drive(self.pages["two"], script)
        self.assertAlmostEqual(notes["drag"], 0.25, delta=0.01)
        begin, stop = map(float, re.search(r"from=([\d.]+)&to=([\d.]+)", notes["zoomed"]).groups())
        self.assertAlmostEqual(begin, 39 / 4, delta=0.1)
        self.assertAlmostEqual(stop, 39 * 3 / 4, delta=0.1)
        self.assertNotIn("from", notes["reset"])
        self.assertEqual(notes["chosen"], "#metric=lr&also=&log=1&smooth=0.5&hide=0")
        self.assertEqual(notes["caption"], "lr")

    def test_a_page_that_is_watched(self):
        """Headless Chromium prints nothing of a page that was loaded again, so the test notes what the page plans."""
        page = self.folder / "watched.html"
        text = self.pages["one"].read_text()
        self.assertIn('"reload":null', text)
        note = "<script>notes.plans = []; window.setTimeout = (action, delay) => notes.plans.push([String(action), delay]);</script>"
        for written, plans in ((9999999999, [["() => location.reload()", 1000]]), (0, [])):
            watched = re.sub(r'"written":\d+,"reload":null', f'"written":{written},"reload":1', text)
            page.write_text(watched.replace("<head>", "<head>" + note, 1).replace("</time>", '</time><span id="watched"></span>'))
            document, notes = self.drive(page, "")
            self.assertEqual(notes["plans"], plans)
            self.assertEqual('<span id="watched">it was watched, which has ended<' in document, not plans)

    def test_what_is_seen(self):
        script = """const box = document.querySelector(".chart svg").getBoundingClientRect();
            notes.box = [box.left, box.top, box.right, box.bottom].map(Math.round); notes.width = document.documentElement.scrollWidth;"""
        size = (600, 1400)
        _, notes = self.drive(self.pages["two"], script, size=size)
        self.assertLessEqual(notes["width"], size[0])
        light = ("#f6f7f9", "#ffffff", "#1f6fb4", "#d9541e")
        dark = ("#14181d", "#1c2229", "#58a6e8", "#f28b5b")
        for options, here, other in (((), light, dark), (("--blink-settings=preferredColorScheme=0",), dark, light)):
            picture = browser.screenshot(self.pages["two"], size=size, options=options)
            left, top, right, bottom = box = (*notes["box"][:3], min(notes["box"][3], picture.height))
            self.assertEqual("#%02x%02x%02x" % picture.pixel(2, 2), here[0])
            self.assertGreater(picture.count(here[1], box), (right - left) * (bottom - top) // 2)
            for place in (2, 3):
                self.assertGreater(picture.count(here[place], box), 200)
                self.assertLess(picture.count(other[place], box), 20)


if __name__ == "__main__":
    if not browser.CHROMIUM:
        print("chromium is missing, so the page is not tested: scripts/setup.sh --tests installs it")
        sys.exit(77)
    unittest.main()
