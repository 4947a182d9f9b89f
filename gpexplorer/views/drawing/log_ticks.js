const MOST = 5;
const [low, high] = [cb_data.start, cb_data.end].map(Math.log10).sort((a, b) => a - b);
if (!isFinite(high - low)) return [];
const between = (tick) => Math.log10(tick) >= low - 1e-9 && Math.log10(tick) <= high + 1e-9;
const decades = (every) => Array.from({length: Math.floor((high - low) / every) + 2},
                                      (_, k) => every * (Math.floor(low / every) + k));
let ticks = [];
for (const parts of [[1, 2, 5], [1, 3], [1]]) {
  ticks = decades(1).flatMap((power) => parts.map((part) => part * 10 ** power)).filter(between);
  if (ticks.length <= MOST) break;
}
for (let every = 2; ticks.length > MOST; every++) ticks = decades(every).map((power) => 10 ** power).filter(between);
if (ticks.length < 2) {  // within a factor of three
  const [from, to] = [10 ** low, 10 ** high], size = 10 ** Math.floor(Math.log10((to - from) / 2));
  const step = size * ([5, 2].find((part) => part * size <= (to - from) / 2) || 1);
  ticks = Array.from({length: MOST}, (_, k) => step * (Math.ceil(from / step) + k)).filter(between);
}
return ticks;
