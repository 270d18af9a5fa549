"use strict";
// Numbers, ticks and smoothing, for chart.js.

// Returns a number as short text; a gap as a dash.
function shown(value) {
  if (value === null || value === undefined) return "–";
  const isPlain = value === 0 || Math.abs(value) >= 1e-3 && Math.abs(value) < 1e6;
  if (!isPlain) return value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(+value.toPrecision(5));
}

// Returns about `count` round values within [low, high].
function linearTicks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw)), ticks = [];
  const step = [1, 2, 5, 10].find(factor => raw <= factor * power * 1.0000001) * power;
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step);
  return ticks;
}

// Returns powers of ten within [low, high]; also their multiples if these are few; linear ticks within less than a factor of 3.
function logTicks(low, high) {
  if (high / low < 3) return linearTicks(low, high, 5);
  const decades = Math.log10(high) - Math.log10(low), every = Math.ceil(decades / 7), ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    if (power % every === 0) ticks.push(...(decades > 3 ? [1] : [1, 2, 5]).map(factor => factor * 10 ** power));
  }
  return ticks.filter(tick => tick >= low && tick <= high);
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

// Returns the place of the point of the curve that is nearest to `x`.
function nearest(curve, x) {
  const after = Math.min(lowerBound(curve.x, x), curve.x.length - 1), before = Math.max(after - 1, 0);
  return x - curve.x[before] < curve.x[after] - x ? before : after;
}

// Returns the exponential moving average of a curve as another curve. The sum of the weights is 1 from the first value on. Gaps
// stay gaps. A curve with means has two points per mean: its average uses the means.
function smoothed(curve, weight) {
  const stride = curve.m ? 2 : 1, average = {x: [], y: [], weight};
  let sum = 0, total = 0;
  (curve.m || curve.y).forEach((value, i) => {
    if (value !== null) [sum, total] = [weight * sum + (1 - weight) * value, weight * total + (1 - weight)];
    average.x.push(curve.x[stride * (i + 1) - 1]);
    average.y.push(value === null ? null : sum / total);
  });
  return average;
}
