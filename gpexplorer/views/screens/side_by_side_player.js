/* The player of the families side by side: maps on one colour scale, under one bar, over the error against seconds.

   gpexplorerSideBySide(root, {surface, links, send}) draws into `root`; `page_shell.js` has to be there before it. It
   returns {add(key, family), time(measured), say(words), close()}: families and measured times arrive one after the other.
   `send`, where a server listens, asks for {kind: "rows", n} or {kind: "time"}. Nothing is sent while it plays. */
const gpexplorerSideBySide = (() => {
  const { icon, fill_bar } = gpexplorerShell
  const ORDER = ["swaps", "blocks", "eigenfunctions", "folds", "minibatches", "exact"]
  const MOVE = 620, REST = 180  // milliseconds between two steps
  const AHEAD = 0.2  // share of the steps after which the page opens: most maps are empty before
  const SHORTEST = 1e-3  // seconds: what is there before any step is left out of the chart of errors
  const SVG = "http://www.w3.org/2000/svg"
  const LAYOUT = `
    <main>
      <button type="button" class="skip">Skip to Play</button>
      <h1 class="say" aria-live="polite"></h1>
      <div class="tiles"></div>
      <div class="transport" role="group" aria-label="Playback">
        <button type="button" class="play" id="play"></button>
        <button type="button" class="icon back" title="One step back" aria-label="One step back"></button>
        <button type="button" class="icon next" title="One step" aria-label="One step"></button>
        <input type="range" min="0" step="1" aria-label="Step">
        <output></output>
        <button type="button" class="by" aria-pressed="false">same seconds</button>
      </div>
      <div class="charts">
        <figure class="errors"><figcaption>test error (SMSE)</figcaption><svg role="img"></svg></figure>
        <figure class="times"><figcaption>time per step</figcaption><svg role="img"></svg>
          <button type="button" class="measure">Measure on doubling rows</button></figure>
      </div>
    </main>
    <header><a class="word">gpexplorer</a><nav aria-label="Pages"></nav></header>`
  const TILE = `
    <div class="head"><h2></h2><b></b><span class="note"></span><span class="unit">test error</span></div>
    <button type="button" class="map"><canvas></canvas><svg viewBox="0 0 100 100" aria-hidden="true"></svg></button>
    <div class="below"><svg class="strip" viewBox="0 0 212 46" preserveAspectRatio="none" aria-hidden="true"></svg>
    <p class="what"></p><a class="open">Open this run in the laboratory</a></div>`
  const COLOURS = {  // of -1, 0 and 1
    light: [[70, 32, 120], [255, 255, 255], [10, 92, 72]],
    dark: [[178, 140, 240], [20, 24, 29], [72, 214, 165]],
  }
  const mix = (a, b, u) => a + (b - a) * u
  const ease = (u) => (u < 0.5 ? 2 * u * u : 1 - 2 * (1 - u) * (1 - u))
  const grouped = (value) => Math.round(value).toLocaleString("en-US")
  const duration = (s) => {
    const [factor, unit] = s < 1e-3 ? [1e6, "\u00b5s"] : s < 1 ? [1e3, "ms"] : [1, "s"]
    return `${Number((factor * s).toPrecision(2))} ${unit}`
  }
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))
  const node = (name, attributes = {}, text = "") => {
    const made = document.createElementNS(SVG, name)
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
    if (text) made.textContent = text
    return made
  }
  const scale = (from, to, a, b) => (value) => a + ((Math.log(value) - Math.log(from)) / (Math.log(to) - Math.log(from))) * (b - a)

  return (root, { surface, links = {}, send = null }) => {
    root.innerHTML = LAYOUT  // constant text
    root.classList.add("side-by-side")
    const find = (selector) => root.querySelector(selector)
    const [say, range, output, play, by, measure] = [".say", "input", "output", ".play", ".by", ".measure"].map(find)
    const still = window.matchMedia("(prefers-reduced-motion: reduce)")
    let families = {}, times = {}, measuring = "", at = 0, ahead = true, playing = false, moving = 0, rest = 0, seconds = false, table = []
    const tiles = {}
    const word = find(".word")
    if (send) word.href = "?page=first"
    for (const name of ["back", "next"]) find(`.${name}`).append(icon(name))

    // -- maps -----------------------------------------------------------------------------------------------------
    const paint_bytes = (canvas, side, value) => {  // value(i): 0 to 255, of which 127.5 is zero
      const context = canvas.getContext("2d")
      canvas.width = canvas.height = side
      const image = context.createImageData(side, side)
      for (let i = 0; i < side * side; i++) {
        const [r, g, b] = table[Math.round(value(i))]
        image.data.set([r, g, b, 255], 4 * i)
      }
      context.putImageData(image, 0, 0)
    }
    const colours = (theme) => {
      const [low, middle, high] = COLOURS[theme]
      table = Array.from({ length: 256 }, (_, k) => {
        const u = (k - 127.5) / 127.5, end = u < 0 ? low : high
        return [0, 1, 2].map((c) => Math.round(mix(middle[c], end[c], Math.abs(u) ** 0.8)))
      })
    }
    const place = (row) => [100 * surface.rows[0][row], 100 * surface.rows[1][row]]
    const triangle = ([x, y], size) => `M${x} ${y - size}l${0.95 * size} ${1.7 * size}h${-1.9 * size}z`
    const dots = (rows) => rows.map((row) => place(row)).map(([x, y]) => `M${x} ${y}h0`).join("")
    const marks = {  // what a family moves, between frame `from` and frame `to`
      swaps: (svg, from, to, u) => {
        const [out, into] = u > 0 ? to.moved ?? [] : []
        const others = from.points.filter((row) => row !== out)
        svg.append(node("path", { class: "point", d: others.map((row) => triangle(place(row), 3)).join("") }))
        if (out === undefined) return
        const [x, y] = place(out), [X, Y] = place(into)
        svg.append(node("path", { class: "way", d: `M${x} ${y}Q${x} ${(y + Y) / 2} ${X} ${Y}` }))
        const bend = (a, b, c) => (1 - u) ** 2 * a + 2 * u * (1 - u) * b + u ** 2 * c
        svg.append(node("path", { class: "point moving", d: triangle([bend(x, x, X), bend(y, (y + Y) / 2, Y)], 3.6) }))
      },
      blocks: (svg, from, to, u) => {
        svg.append(node("path", { class: "rows", d: dots(surface.rows[0].map((_, row) => row)) }))
        const block = (u > 0 ? to : from).block
        svg.append(node("path", { class: "lit", d: dots(block), style: `stroke-width: ${u > 0 ? 4 * Math.sin(Math.PI * Math.min(u, 0.5)) : 4}` }))
      },
      eigenfunctions: () => {},
      folds: (svg, from, to, u) => from.lengths.forEach((length, k) =>
        svg.append(node("circle", { class: "fold", cx: 50, cy: 50, r: Math.min(100 * mix(length, to.lengths[k], u), 48) }))),
      minibatches: (svg, from, to, u) => {
        svg.append(node("path", { class: "rows", d: dots(surface.rows[0].map((_, row) => row)) }))
        const batch = u > 0.5 ? to.batch : from.batch
        svg.append(node("path", { class: "lit", d: dots(batch), style: `opacity: ${u > 0 ? Math.abs(1 - 2 * u) : 1}` }))
      },
      exact: () => {},
    }
    const bars = (svg, frames, k, name) => {  // on a logarithmic scale: the first ones would hide the others
      const largest = Math.log1p(Math.max(...frames.map((frame) => frame.gain), 1e-9)), wide = 212 / surface.steps
      frames.slice(1, k + 1).forEach((frame, i) => {
        const high = 44 * Math.log1p(Math.max(frame.gain, 0)) / largest
        svg.append(node("rect", { class: i === k - 1 ? "newest" : "bar", x: i * wide + 0.6, width: wide - 1.2, y: 46 - high, height: high }))
      })
      const gain = frames[k].gain
      return k === 0 ? `each ${name}: its decrease` : gain > 0 ? `${name} ${k}: \u2212${gain < 10 ? gain.toFixed(1) : grouped(gain)}` : `${name} ${k}: nothing gained`
    }
    const strips = {
      swaps: (svg, frames, k) => bars(svg, frames, k, "swap") + (frames[k].gain > 0 ? " nat" : ""),
      blocks: (svg, frames, k) => bars(svg, frames, k, "block"),
      eigenfunctions: (svg, frames, k, tile) => {
        const first = Math.max(1, k - 5), weights = frames[k].weights, largest = Math.max(...weights.map(Math.abs), 1e-9)
        for (let j = first; j <= k; j++) {
          const x = 36 * (j - first)
          const canvas = tile.functions[j] ??= document.createElement("canvas")
          const values = bytes(frames[j].function)
          paint_bytes(canvas, surface.small, (i) => values[i])
          svg.append(node("image", { x, y: 0, width: 32, height: 32, href: canvas.toDataURL(), preserveAspectRatio: "none" }))
          svg.append(node("rect", { class: "newest", x, y: 38, width: Math.max(32 * Math.abs(weights[j - 1]) / largest, 0.6), height: 6 }))
        }
        return k === 0 ? "functions, and their weights" : `newest of ${k}; bars: weights`
      },
      folds: (svg, frames, k) => {
        const values = frames.flatMap((frame) => frame.lengths), high = scale(Math.min(...values), Math.max(...values), 43, 3)
        frames[0].lengths.forEach((_, fold) => {
          const points = frames.slice(0, k + 1).map((frame, i) => `${(i * 206) / surface.steps + 3},${high(frame.lengths[fold])}`)
          svg.append(node("polyline", { class: "curve", points: points.join(" ") }))
          const [x, y] = points.at(-1).split(",")
          svg.append(node("circle", { class: "newest", cx: x, cy: y, r: 2.6 }))
        })
        const spread = Math.max(...frames[k].lengths) / Math.min(...frames[k].lengths)
        return spread < 1.005 ? "lengthscales: all four agree" : `lengthscales: \u00d7${spread.toPrecision(3)} apart`
      },
      minibatches: (svg, frames, k) => {
        const values = frames.slice(1).map((frame) => frame.estimate).filter((value) => value !== null)
        const low = Math.min(...values), high = Math.max(...values)
        frames.slice(1, k + 1).forEach((frame, i) => frame.estimate !== null && svg.append(node("circle", {
          class: i === k - 1 ? "newest" : "bar", cx: ((i + 1) * 206) / surface.steps, cy: 42 - (38 * (frame.estimate - low)) / (high - low || 1), r: 2.6 })))
        return k === 0 ? "estimates of the NLML" : `NLML estimate: ${grouped(frames[k].estimate).replace("-", "\u2212")} nat`
      },
      exact: (svg) => {
        const [low, middle, high] = ["--low", "--zero", "--high"].map((name) => `var(${name})`)
        const stops = node("linearGradient", { id: "colours" })
        for (const [offset, colour] of [[0, low], [0.5, middle], [1, high]]) stops.append(node("stop", { offset, style: `stop-color: ${colour}` }))
        svg.append(stops, node("rect", { x: 0, y: 16, width: 212, height: 16, fill: "url(#colours)" }))
        return `mean of y: \u2212${surface.ends[1]} to ${surface.ends[1]}`
      },
    }
    const draw_tile = (key, k, u) => {  // frame k (u = 0), or a place between it and the next one
      const tile = tiles[key], family = families[key]
      if (!family) return
      const from = family.frames[Math.min(k, family.frames.length - 1)], to = family.frames[Math.min(k + (u > 0), family.frames.length - 1)]
      const a = bytes(from.map), b = from === to ? a : bytes(to.map)
      paint_bytes(tile.canvas, surface.side, (i) => mix(a[i], b[i], u))
      tile.svg.replaceChildren()
      marks[key](tile.svg, from, to, from === to ? 0 : u)
      tile.number.textContent = mix(from.smse, to.smse, u).toFixed(3)
      if (u > 0 && u < 1 && tile.shown === k) return
      tile.shown = k
      tile.strip.replaceChildren()
      tile.what.textContent = strips[key](tile.strip, family.frames, family.frames.indexOf(from), tile)
    }

    // -- which frame of a family is shown: the step of the bar, or the last one within its seconds --------------------
    const seconds_at = (k) => {  // the bar runs over the seconds of all families, on a logarithmic scale
      const all = ORDER.flatMap((key) => families[key]?.frames.map((frame) => frame.seconds) ?? []).filter((s) => s > SHORTEST)
      const low = Math.min(...all, 1e-3), high = Math.max(...all, 2e-3)
      return k === 0 ? 0 : low * (high / low) ** (k / surface.steps)
    }
    const frame_of = (key, k) => {
      const frames = families[key].frames
      if (!seconds) return Math.min(k, frames.length - 1)
      return Math.max(0, frames.findLastIndex((frame) => frame.seconds <= seconds_at(k) * 1.0001))
    }

    // -- the charts -------------------------------------------------------------------------------------------------
    const axes = (svg, wide, high, x_scale, y_scale, x_ticks, y_ticks, label) => {
      svg.setAttribute("viewBox", `0 0 ${wide} ${high}`)
      svg.replaceChildren()
      for (const [value, text] of x_ticks) svg.append(
        node("line", { class: "grid", x1: x_scale(value), x2: x_scale(value), y1: 8, y2: high - 40 }),
        node("text", { class: "tick", x: x_scale(value), y: high - 24, "text-anchor": "middle" }, text))
      for (const [value, text] of y_ticks) svg.append(
        node("line", { class: "grid", x1: 50, x2: wide - 8, y1: y_scale(value), y2: y_scale(value) }),
        node("text", { class: "tick", x: 44, y: y_scale(value) + 4, "text-anchor": "end" }, text))
      svg.append(node("text", { class: "axis", x: (50 + wide) / 2, y: high - 4, "text-anchor": "middle" }, label))
    }
    const size_of = (svg) => [Math.max(svg.clientWidth, 240), Math.max(svg.clientHeight, 180)]
    const apart = (labels, low, high) => {  // labels that touch are moved from each other: down, then up from the axis
      labels.sort((a, b) => a.y - b.y)
      const near = (label, others) => others.filter((other) => Math.abs(other.x - label.x) < 125).map((other) => other.y)
      labels.forEach((label, i) => { label.y = Math.max(label.y, low, ...near(label, labels.slice(0, i)).map((y) => y + 17)) })
      labels.reverse().forEach((label, i) => { label.y = Math.min(label.y, high, ...near(label, labels.slice(0, i)).map((y) => y - 17)) })
      return labels
    }
    const along = (points) => points.slice(1).flatMap(([x1, y1], i) => {  // places every few pixels along a line
      const [x0, y0] = points[i], count = Math.ceil(Math.hypot(x1 - x0, y1 - y0) / 5)
      return Array.from({ length: count + 1 }, (_, k) => [mix(x0, x1, k / (count || 1)), mix(y0, y1, k / (count || 1))])
    })
    const beside = (labels, lines, taken, right, low) => {  // each label where it covers least of lines, dots and words
      const dots = labels.map((label) => ({ x: label.x - 6, y: label.y - 6, wide: 12, high: 12 }))
      const gap = (box, { x, y }) => Math.hypot(Math.max(box.x - x, x - box.x - box.wide, 0), Math.max(box.y - y, y - box.y - box.high, 0))
      const meet = (a, b) => a.x < b.x + b.wide && b.x < a.x + a.wide && a.y < b.y + b.high && b.y < a.y + a.high
      for (const label of labels) {
        const wide = label.wide, high = 16
        const inside = (box) => box.x > 52 && box.x + wide < right && box.y > 2 && box.y + high < low
        const free = (box) => inside(box) && !taken.some((other) => meet(box, other))
        const around = [0, 18, 36, 54, 72].flatMap((away) => [10, 24, 38].flatMap((out) => [
          [out, -high - 3 - away], [out, 5 + away], [-wide - out, -high - 3 - away], [-wide - out, 5 + away],
        ].map(([dx, dy]) => ({ x: label.x + dx, y: label.y + dy, wide, high, away: Math.abs(dy) + out }))))
        const anywhere = () => along([[3, 0], [low, 0]]).flatMap(([y]) => along([[53, 0], [right - wide, 0]]).map(([x]) =>
          ({ x, y, wide, high, away: Math.hypot(x - label.x, y - label.y) })))
        const clear = (box) => free(box) && !dots.some((dot) => meet({ x: box.x - 1, y: box.y - 7, wide: wide + 2, high: 27 }, dot))
        const kinds = [() => around.filter(clear), () => anywhere().filter(clear), () => around.filter(free), () => anywhere().filter(free)]
        const places = kinds.reduce((found, kind) => (found.length ? found : kind()), [])
        const cost = (box) => 0.2 * box.away + lines.reduce((sum, [x, y, worth = 1]) =>
          sum + (x > box.x - 4 && x < box.x + wide + 4 && y > box.y - 1 && y < box.y + high + 1 ? worth : 0), 0) +
          dots.filter((other) => meet(box, other)).length * 20 +  // where no place is clear of all
          labels.filter((other) => gap(box, other) < gap(box, label)).length * 6  // it would seem to name another dot
        label.box = places.reduce((best, box) => (cost(box) < cost(best) ? box : best), places[0] ?? { x: label.x + 10, y: label.y - high, wide, high })
        taken.push(label.box)
      }
      return labels
    }
    const along_level = (wide, level, lines, right, low) => {  // where the name of a level covers least, from left to right
      const places = [level + 4, level - 20].filter((y) => y + 16 < low - 36).flatMap((y) =>
        Array.from({ length: 12 }, (_, k) => ({ x: 56 + (k / 11) * Math.max(right - 70 - wide, 0), y, wide, high: 16 })))
      const covered = (box) => lines.filter(([x, y]) => x > box.x - 4 && x < box.x + wide + 4 && y > box.y - 1 && y < box.y + 17).length
      return places.reduce((best, box) => (covered(box) < covered(best) ? box : best))
    }
    const points_of = (frames, x, y) => frames.map((frame) => `${x(frame.seconds)},${y(Math.min(frame.smse, 1.3))}`).join(" ")
    const draw_errors = () => {
      const svg = find(".errors svg"), [wide, high] = size_of(svg)
      const worked = ORDER.filter((key) => families[key]).map((key) => [key, families[key].frames])
      const all = worked.flatMap(([, frames]) => frames.filter((frame) => frame.seconds > SHORTEST).map((frame) => frame.seconds))
      const x = scale(Math.min(...all, 2e-3) * 0.8, Math.max(...all, 1) * 1.15, 50, wide - 10), y = scale(0.03, 1.3, high - 40, 8)
      const ticks = [1e-3, 1e-2, 1e-1, 1, 10, 100].filter((s) => x(s) >= 50 && x(s) <= wide - 10).map((s) => [s, String(s)])
      axes(svg, wide, high, x, y, ticks, [[1, "1"], [0.3, "0.3"], [0.1, "0.1"], [0.03, "0.03"]], "seconds of work")
      const labels = [], lines = [], taken = []
      for (const [key, all_frames] of worked) {
        if (key === "exact") {
          const level = y(all_frames[0].smse)
          const words = node("text", { class: "label" }, `exact model, after ${duration(all_frames[0].seconds)}`)
          svg.append(node("line", { class: "floor", x1: 50, x2: wide - 10, y1: level, y2: level }), words)
          const box = along_level(words.getComputedTextLength(), level, lines, wide, high)
          words.setAttribute("x", box.x)
          words.setAttribute("y", box.y + 12)
          lines.push(...along([[50, level], [wide - 10, level]]))
          taken.push(box)
          continue
        }
        const frames = all_frames.filter((frame) => frame.seconds > SHORTEST), k = frame_of(key, at)
        const done = all_frames.slice(0, k + 1).filter((frame) => frame.seconds > SHORTEST), now = done.at(-1)
        svg.append(node("polyline", { class: `later ${key}`, points: points_of(frames, x, y) }))
        const path = (some) => along(some.map((frame) => [x(frame.seconds), y(Math.min(frame.smse, 1.3))]))
        lines.push(...path(done), ...path(frames).map((place) => [...place, 0.15]))  // later steps are faint
        if (!now) continue
        svg.append(node("polyline", { class: `line ${key}`, points: points_of(done, x, y) }),
          node("circle", { class: `now ${key}`, cx: x(now.seconds), cy: y(Math.min(now.smse, 1.3)), r: 6 }))
        const words = node("text", { class: `label strong ${key}` }, families[key].title)
        svg.append(words)
        labels.push({ words, key, x: x(now.seconds), y: y(Math.min(now.smse, 1.3)), wide: words.getComputedTextLength() })
      }
      for (const { words, box, key, x: from, y: level } of beside(labels, lines, taken, wide - 8, high - 42)) {
        const to = Math.min(Math.max(from, box.x), box.x + box.wide), end = Math.min(Math.max(level, box.y), box.y + box.high)
        if (Math.hypot(to - from, end - level) > 20)  // away from its dot
          svg.append(node("line", { class: `leader ${key}`, x1: from, y1: level, x2: to, y2: end }))
        words.setAttribute("x", box.x)
        words.setAttribute("y", box.y + 12)
        svg.append(words)  // over all lines
      }
      svg.setAttribute("aria-label", `Test error against seconds at ${output.textContent}: ` +
        worked.map(([key, frames]) => `${families[key].title} ${frames[frame_of(key, at)].smse}`).join(", "))
    }
    const draw_times = () => {
      const svg = find(".times svg"), [wide, high] = size_of(svg), all = Object.values(times).flat()
      find(".times").classList.toggle("empty", !all.length)
      const sizes = [...new Set(all.map(([n]) => n))].sort((a, b) => a - b), spent = all.map(([, s]) => s)
      const [n0, n1] = [sizes[0] ?? 250, Math.max(sizes.at(-1) ?? 0, 8 * (sizes[0] ?? 250))]
      const low = Math.min(...spent, 1e-3) / 1.6, top = Math.max(...spent, 1) * 1.6
      const x = scale(n0 * 0.9, n1 * 1.1, 50, wide - 122), y = scale(low, top, high - 40, 8)
      const rows = [250, 500, 1000, 2000, 4000, 8000, 16000].filter((n) => n >= n0 && n <= n1)
      const ticks = [1e-4, 1e-3, 1e-2, 0.1, 1, 10].filter((s) => s > low && s < top).map((s) => [s, duration(s)])
      axes(svg, wide, high, x, y, rows.filter((_, i) => wide > 420 || i % 2 === 0).map((n) => [n, grouped(n)]), ticks, "training rows n")
      const labels = [], from = low * 1.3
      for (const [power, name] of [[1, "n"], [2, "n\u00b2"], [3, "n\u00b3"]]) {
        const reach = Math.min(n1, n0 * (top / from) ** (1 / power)), end = y(from * (reach / n0) ** power)
        svg.append(node("line", { class: "slope", x1: x(n0), x2: x(reach), y1: y(from), y2: end }))
        labels.push({ look: "tick", text: name, x: x(reach) - 3, y: end + 4 })
      }
      for (const key of ORDER.filter((name) => times[name]?.length)) {
        const points = times[key].map(([n, s]) => [x(n), y(s)])
        svg.append(node("polyline", { class: `line ${key}`, points: points.join(" ") }))
        for (const [cx, cy] of points) svg.append(node("circle", { class: `now ${key}`, cx, cy, r: 3.4 }))
        labels.push({ look: `label strong ${key}`, text: families[key]?.title ?? key, x: points.at(-1)[0], y: points.at(-1)[1] + 4 })
      }
      for (const { look, text, x: left, y: level } of apart(labels, 16, high - 46))
        svg.append(node("text", { class: look, x: left + 8, y: level }, text))
      svg.setAttribute("aria-label", "Time per step against training rows: " + Object.entries(times)
        .map(([key, points]) => `${key} ${points.map(([n, s]) => `${duration(s)} with ${n} rows`).join(", ")}`).join("; "))
      measure.hidden = !send || Boolean(all.length) || Boolean(measuring)
      find(".times figcaption").textContent = `time per step${measuring ? `: measuring ${measuring} \u2026` : ""}`
    }

    // -- one moment ---------------------------------------------------------------------------------------------------
    const show = (k, u = 0) => {
      at = Math.min(Math.max(k, 0), surface.steps)
      for (const key of ORDER.filter((name) => families[name])) {
        const now = frame_of(key, at), next = frame_of(key, Math.min(at + 1, surface.steps))
        draw_tile(key, now, next === now + 1 ? u : 0)
      }
      if (u > 0) return
      range.value = at
      output.textContent = seconds ? (at === 0 ? "0 s" : duration(seconds_at(at))) : `step ${at}`
      range.setAttribute("aria-valuetext", output.textContent)
      draw_errors()
    }
    const step = (then = () => {}) => {
      if (at >= surface.steps) return then()
      const k = at, begin = performance.now()
      cancelAnimationFrame(moving)
      if (still.matches) {
        moving = 0
        show(k + 1)
        return then()
      }
      const frame = (now) => {
        const u = Math.min((now - begin) / MOVE, 1)
        if (u < 1) {
          show(k, Math.max(ease(u), 1e-6))
          moving = requestAnimationFrame(frame)
        } else {
          moving = 0
          show(k + 1)
          then()
        }
      }
      moving = requestAnimationFrame(frame)
    }
    const go_on = () => {
      if (!playing) return
      if (at >= surface.steps) return set_playing(false)
      step(() => { rest = setTimeout(go_on, still.matches ? 900 : REST) })
    }
    const set_playing = (value) => {
      playing = value
      play.replaceChildren(icon(value ? "pause" : "play"), value ? "Pause" : "Play")
      if (value) return go_on()
      clearTimeout(rest)
      cancelAnimationFrame(moving)
      if (moving) show(at)
      moving = 0
    }
    const stop_at = (k) => {
      set_playing(false)
      show(k)
    }
    const jump = (k) => {
      ahead = false
      stop_at(k)
    }
    const start_again = () => {  // from the first step, where the page is still as it was opened, or at the end
      if (ahead || at >= surface.steps) show(0)
      ahead = false
    }
    const actions = {
      toggle: () => {
        if (!playing) start_again()
        set_playing(!playing)
      },
      back: () => jump(at - 1), again: () => jump(0),
      next: () => {
        set_playing(false)
        if (ahead) start_again()
        step()
      },
      close: () => enlarge(null),
    }
    play.onclick = actions.toggle
    find(".skip").onclick = () => play.focus()
    find(".back").onclick = actions.back
    find(".next").onclick = actions.next
    range.max = surface.steps
    range.oninput = () => jump(Number(range.value))
    by.onclick = () => {  // the bar keeps the moment of the family in the middle, so that the maps stay comparable
      const shown = ORDER.filter((key) => families[key] && key !== "exact").map((key) => frame_of(key, at))
      const spent = ORDER.filter((key) => families[key] && key !== "exact").map((key, i) => families[key].frames[shown[i]].seconds)
      const middle = (values) => [...values].sort((a, b) => a - b)[values.length >> 1] ?? 0
      seconds = !seconds
      by.setAttribute("aria-pressed", String(seconds))
      const steps = [...Array(surface.steps + 1).keys()]
      stop_at(seconds ? Math.max(0, steps.findIndex((k) => seconds_at(k) >= middle(spent))) : middle(shown))
    }
    measure.onclick = () => {
      measuring = "the first sizes"
      draw_times()
      send({ kind: "time" })
    }
    const KEYS = { " ": "toggle", ArrowRight: "next", ArrowLeft: "back", r: "again", R: "again", Escape: "close" }
    const pressed = (event) => {
      const inside = event.composedPath()[0]
      if (event.ctrlKey || event.metaKey || event.altKey || ["INPUT", "TEXTAREA", "SELECT"].includes(inside.tagName)) return
      if (event.key === " " && ["BUTTON", "A"].includes(inside.tagName)) return
      if (!KEYS[event.key]) return
      event.preventDefault()
      actions[KEYS[event.key]]()
    }
    const enlarge = (key) => {  // one tile in place of all, or all again
      find(".tiles").classList.toggle("one", key !== null)
      for (const [name, tile] of Object.entries(tiles)) {
        tile.box.classList.toggle("large", name === key)
        tile.button.title = name === key ? "All families" : "Enlarge"
      }
    }
    for (const key of ORDER) {
      const box = document.createElement("section")
      box.className = `tile ${key}`
      box.innerHTML = TILE  // constant text
      const part = (selector) => box.querySelector(selector)
      tiles[key] = { box, canvas: part("canvas"), svg: part(".map svg"), strip: part(".strip"), number: part("b"), what: part(".what"),
        button: part(".map"), functions: [], shown: -1 }
      part(".map").onclick = () => enlarge(box.classList.contains("large") ? null : key)
      find(".tiles").append(box)
    }
    const sentence = () => {
      const rows = document.createElement(send ? "button" : "strong")
      rows.className = "token"
      rows.textContent = `${grouped(surface.n)} rows`
      if (send) {
        const next = surface.sizes[(surface.sizes.indexOf(surface.n) + 1) % surface.sizes.length]
        Object.assign(rows, { type: "button", title: `${grouped(next)} rows`, onclick: () => send({ kind: "rows", n: next }) })
      }
      say.replaceChildren("Five families learn one surface from ", rows, ". Which comes closest, and how soon?")
    }
    const name_tile = (key) => {
      const { box, button } = tiles[key], family = families[key]
      const part = (selector) => box.querySelector(selector)
      part("h2").textContent = family?.title ?? key[0].toUpperCase() + key.slice(1)
      part(".note").textContent = family?.note ?? "being computed \u2026"
      part(".unit").hidden = !family
      button.setAttribute("aria-label", `${part("h2").textContent}: enlarge, or show all families`)
      part(".open").hidden = !(send && family)
      if (family && send) part(".open").href = `?${family.link}`
      box.classList.toggle("waiting", !family)
    }
    const begin = (given) => {
      surface = given
      families = {}
      sentence()
      set_playing(false)
      for (const key of ORDER) {
        Object.assign(tiles[key], { functions: [], shown: -1 })
        tiles[key].svg.replaceChildren()
        tiles[key].strip.replaceChildren()
        tiles[key].number.textContent = tiles[key].what.textContent = ""
        tiles[key].canvas.width = tiles[key].canvas.height = 1
        name_tile(key)
      }
      ahead = true
      show(Math.round(AHEAD * surface.steps))
    }
    const resized = new ResizeObserver(() => { draw_errors(); draw_times() })
    const bar = fill_bar(root, find("nav"), links, (theme) => {
      colours(theme)
      for (const tile of Object.values(tiles)) tile.shown = -1
      show(at)
    })
    document.addEventListener("keydown", pressed)
    begin(surface)
    draw_times()
    resized.observe(find(".charts"))
    root.dataset.ready = "yes"
    return {
      begin,
      add: (key, family) => {
        families[key] = family
        name_tile(key)
        if (!moving) show(at)
        root.dataset.families = Object.keys(families).length
      },
      time: (measured, what) => {
        times = measured
        measuring = what
        draw_times()
      },
      say: (words) => { say.textContent = words },
      close: () => {
        set_playing(false)
        bar.close()
        resized.disconnect()
        document.removeEventListener("keydown", pressed)
      },
    }
  }
})()
