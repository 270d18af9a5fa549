"use strict";
// Numbers, ticks and smoothing. Used by chart.js.

// Returns a number as short text; a gap as a dash.
function shown(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (value !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(+value.toPrecision(5));
}

// Returns round values within [low, high]: about `count` of them.
function linearTicks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find(factor => raw <= factor * power * 1.0000001) * power;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step);
  return ticks;
}

// Returns powers of ten within [low, high], or also their multiples if there are few; linear ticks within less than a factor of 3.
function logTicks(low, high) {
  if (high / low < 3) return linearTicks(low, high, 5);
  const decades = Math.log10(high / low), every = Math.ceil(decades / 7), factors = decades > 3 ? [1] : [1, 2, 5], ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    if (power % every !== 0) continue;
    for (const factor of factors) {
      const tick = factor * 10 ** power;
      if (tick >= low * 0.999999 && tick <= high * 1.000001) ticks.push(tick);
    }
  }
  return ticks;
}

// Returns a function from values of [low, high] to pixels of [from, to].
function scale(low, high, from, to, isLog) {
  const of = isLog ? Math.log : value => value, begin = of(low), span = of(high) - begin;
  return value => from + (of(value) - begin) / span * (to - from);
}

// Returns the first place of the ascending list whose item is at least `value`.
function lowerBound(list, value) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

// Returns the exponential moving average of a curve as another curve. The first values count as much as later ones, as in Adam.
// Gaps stay gaps. A curve with means has two points per mean: its average uses the means.
function smoothed(curve, weight) {
  const values = curve.m || curve.y, stride = curve.m ? 2 : 1, x = [], y = [];
  let sum = 0, total = 0;
  values.forEach((value, i) => {
    if (value !== null) {
      sum = weight * sum + (1 - weight) * value;
      total = weight * total + (1 - weight);
    }
    x.push(curve.x[stride * (i + 1) - 1]);
    y.push(value === null ? null : sum / total);
  });
  return {x, y};
}

// Returns the place of the point of the curve that is nearest to `x`.
function nearest(curve, x) {
  const after = Math.min(lowerBound(curve.x, x), curve.x.length - 1), before = Math.max(after - 1, 0);
  return x - curve.x[before] < curve.x[after] - x ? before : after;
}
