/* The player of the first screen: it fills the figures of a lesson frame by frame and moves between two frames.

   await gpexplorerLesson(root, {lesson, document, links, send}) draws into `root`. `document` is the JSON of the Bokeh
   document of the figures; it belongs to this page alone, so that no change of a figure goes to a server. `send`, where
   a server listens, asks for another lesson: {kind: "swap", at, row, slot}, {kind: "points", m}, {kind: "undo"}. It
   returns {show(lesson), say(words), close()}; `page_shell.js` has to be there before it. Nothing is sent while a lesson plays. */
const gpexplorerLesson = (() => {
  const { icon, fill_bar, leave_for_laboratory } = gpexplorerShell
  const WORDS = ["", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"]
  const FEWEST = 4, MOST = 20
  const SLIDE = 380, MOVE = 460, CHANGE = 240, REST = 170  // milliseconds of the parts of one swap
  const INKS = {
    light: { rows: "#717e8b", mean: "#0072b2", band: "#56b4e9", exact: "#22303c", inducing: "#d55e00",
      removed: "#b0508a", tested: "#007a5a", predicted: "#8f6200", line: "#c4ccd4", grid: "#eef1f4", text: "#22303c",
      soft: "#5a6672", ground: "#ffffff" },
    dark: { rows: "#8b98a5", mean: "#4db3f0", band: "#56b4e9", exact: "#e4eaef", inducing: "#ff8a3d",
      removed: "#e39cc4", tested: "#2fc79a", predicted: "#f0b429", line: "#4a5560", grid: "#232b33", text: "#e4eaef",
      soft: "#a9b4bf", ground: "#14181d" },
  }
  const LAYOUT = `
    <main>
      <button type="button" class="skip">Skip to Play</button>
      <h1 class="say" aria-live="polite"></h1>
      <div class="pictures">
        <div class="left">
          <div class="picture data"></div><div class="picture points"></div><div class="picture landscape"></div>
        </div>
        <div class="right">
          <p class="number"><b></b><span><strong>nat</strong><br>from the exact model</span></p>
          <div class="picture curve"></div>
        </div>
      </div>
      <div class="transport" role="group" aria-label="Playback">
        <button type="button" class="play" id="play"></button>
        <button type="button" class="icon back" title="One swap back" aria-label="One swap back"></button>
        <button type="button" class="icon next" title="One swap" aria-label="One swap"></button>
        <button type="button" class="icon again" title="From the start" aria-label="From the start"></button>
        <input type="range" min="0" step="1" aria-label="Swap">
        <output></output>
      </div>
    </main>
    <header><span class="word">gpexplorer</span><nav aria-label="Pages"></nav></header>`
  const ALT = {
    data: "Data and prediction", points: "Inducing points on the axis of x, and the next move",
    landscape: "What every row would bring in the place of the point that is taken out",
    curve: "Distance to the exact model after every swap",
  }
  const within = (root, selector) => [...root.querySelectorAll(selector),
    ...[...root.querySelectorAll("*")].flatMap((el) => (el.shadowRoot ? within(el.shadowRoot, selector) : []))]
  const mix = (a, b, u) => a + (b - a) * u
  const ease = (u) => (u < 0.5 ? 2 * u * u : 1 - 2 * (1 - u) * (1 - u))
  const pairs = (xs, ys) => xs.map((x, i) => [x, ys[i]])
  const whole = (line) => line.reduce((parts, at) => {  // the parts of a line that NaN interrupts
    if (Number.isFinite(at[1])) parts.at(-1).push(at)
    else parts.push([])
    return parts
  }, [[]])
  const DX = { left: 1, center: 0, right: -1 }  // the side of its place on which a label lies
  const part = (t, from, length) => Math.min(Math.max((t - from) / length, 0), 1)
  const shown = (value) => (Math.abs(value) < 10 ? value.toFixed(1) : value.toFixed(0)).replace("-", "\u2212")
  const capital = (word) => word[0].toUpperCase() + word.slice(1)
  const count = (m) => WORDS[m] ?? String(m)
  const round_up = (value) => {  // the next round number
    const unit = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)))
    return unit * [1, 1.5, 2, 3, 4, 5, 6, 8, 9, 10].find((factor) => factor * unit >= value)
  }

  return async (root, { lesson, document: json, links = {}, send = null }) => {
    if (links.Laboratory && leave_for_laboratory()) return { show: () => {}, say: () => {}, close: () => {} }
    root.innerHTML = LAYOUT  // constant text
    const find = (selector) => root.querySelector(selector)
    const drawn = Bokeh.require("document").Document.from_json(json)
    const names = ["data", "points", "landscape", "curve"]
    await Bokeh.embed.add_document_standalone(drawn, root, names.map((name) => find(`.picture.${name}`)))
    const figures = Object.fromEntries(names.map((name, i) => [name, { model: drawn.roots()[i] }]))
    const [say, number, output, range, play] = [".say", ".number b", "output", "input", ".play"].map(find)
    const still = window.matchMedia("(prefers-reduced-motion: reduce)")
    let at = 0, playing = false, moving = 0, theme = "light", drag = null, rows

    for (const name of ["back", "next", "again"]) find(`.${name}`).append(icon(name))
    const source_of = (figure) => Object.fromEntries(
      figure.renderers.map((renderer) => [renderer.data_source.name, renderer.data_source]))
    const all = Object.fromEntries(Object.entries(figures).map(([name, { model }]) => [name, source_of(model)]))
    const star = figures.points.model.renderers.find((renderer) => renderer.data_source.name === "star").glyph
    const fill = (figure, name, data) => { all[figure][name].data = data }
    const row = (id) => rows.get(id)
    const point = (id, y) => ({ x: id === null ? [] : [row(id).x], y: id === null ? [] : [y] })

    const paint = (name) => {
      theme = name
      const inks = INKS[name]
      for (const { model } of Object.values(figures)) {
        for (const renderer of model.renderers) {
          const [role, ...more] = renderer.glyph.tags
          for (const glyph of [renderer.glyph, renderer.nonselection_glyph, renderer.muted_glyph]) {
            if (role === "labels" || !glyph?.properties) continue
            if ("line_color" in glyph.properties)
              glyph.line_color = more.includes("ringed") ? inks.ground : role === "rows" ? null : inks[role]
            if ("fill_color" in glyph.properties) glyph.fill_color = more.includes("hollow") ? inks.ground : inks[role]
          }
        }
        for (const axis of [...model.below, ...model.left].filter((side) => "axis_label_text_color" in side.properties))
          Object.assign(axis, { axis_label_text_color: inks.text, major_label_text_color: inks.soft })
        for (const grid of model.center) if ("grid_line_color" in grid.properties) grid.grid_line_color = inks.grid
      }
      for (const name of ["data", "landscape", "curve"]) labels[name]?.()
    }
    const labels = {}
    const write_labels = (figure, entries) => {
      labels[figure] = () => {
        const inks = INKS[theme]
        const used = entries.filter((entry) => entry && Number.isFinite(entry.y))
        fill(figure, "labels", {
          x: used.map((e) => e.x), y: used.map((e) => e.y), text: used.map((e) => e.text),
          ink: used.map((e) => inks[e.ink]), align: used.map((e) => e.align ?? "center"),
          dx: used.map((e) => e.dx ?? 0), dy: used.map((e) => e.dy ?? 0), ground: used.map(() => inks.ground),
        })
      }
      labels[figure]()
    }

    // -- labels: each where it covers no line, no dot and no other label, and none where there is no such place ------
    const pen = document.createElement("canvas").getContext("2d")
    const size_of_words = () => (is_phone() ? 12 : 13.5)
    const width_of = (text) => {
      pen.font = `${size_of_words()}px helvetica`  // as Bokeh draws it
      return pen.measureText(text).width
    }
    const is_phone = () => root.clientWidth < 600
    const placed = (figure, wishes, { lines, dots, faint = [] }) => {
      const { x_range, y_range, inner_width: wide, inner_height: tall } = figures[figure].model
      if (!wide || !tall) return []  // not laid out yet
      const share_of = ({ start, end }, value) => (value - start) / (end - start)
      const pixel = ([x, y]) => [share_of(x_range, x) * wide, (1 - share_of(y_range, y)) * tall]
      const along = (line) => line.map(pixel).flatMap(([x, y], i, path) => {  // places every few pixels
        const [x0, y0] = path[Math.max(i - 1, 0)], steps = Math.ceil(Math.hypot(x - x0, y - y0) / 3) || 1
        return Array.from({ length: steps }, (_, k) => [mix(x, x0, k / steps), mix(y, y0, k / steps), 3])
      })
      const taken = [...lines.flatMap(along), ...dots.map((dot) => [...pixel(dot), dot[2] + 2])], softer = faint.flatMap(along)
      const high = 1.2 * size_of_words() + 4, boxes = []
      const within_box = (box) => ([x, y, more]) => Math.abs(x - box.x) < box.wide / 2 + more && Math.abs(y - box.y) < high / 2 + more
      const found = []
      for (const { texts, ink, places } of wishes)
        for (const text of texts) {
          const width = width_of(text) + 4
          const free = places.filter(({ cost }) => Number.isFinite(cost)).map((place) => {
            const [x, y] = pixel([place.x, place.y]), middle = x + place.dx + (DX[place.align] * width) / 2
            const inside = place.shift ? Math.min(Math.max(middle, width / 2 + 1), wide - width / 2 - 1) : middle
            const box = { x: inside, y: y + place.dy, wide: width }
            return { ...place, dx: place.dx + inside - middle, text, ink, box }
          }).filter(({ box }) => box.x - width / 2 >= 0 && box.x + width / 2 <= wide && box.y - high / 2 >= 0 && box.y + high / 2 <= tall &&
            !boxes.some((other) => Math.abs(other.x - box.x) < (other.wide + width) / 2 + 2 && Math.abs(other.y - box.y) < high + 2))
          const cost = (label) => label.cost + 0.1 * softer.filter(within_box(label.box)).length
          const best = free.map((label) => [cost(label), label]).sort(([a], [b]) => a - b)
            .find(([, { box }]) => !taken.some(within_box(box)))?.[1]
          if (!best) continue
          boxes.push(best.box)
          found.push(best)
          break
        }
      return found
    }

    // -- one moment: frame `k`, or a place between the frames k and k + 1 ----------------------------------------
    const limits_of = (next) => {  // round limits of a landscape; after the last swap those of the one before stay
      next ??= lesson.frames.findLast((frame) => frame.next)?.next
      if (!next) return [-1, 1]
      const values = [...next.exact, ...next.approx].filter((value) => value !== null)
      const top = Math.max(...values, 0), bottom = Math.min(...values, 0), room = share(figures.landscape, 25)
      const low = bottom < -0.02 * Math.max(top, 1) ? round_up(-bottom * 1.1) : 0
      const high = round_up(Math.max((top + room * low) / (1 - room), 0.1 * low, 1))
      return [low ? -low : -0.08 * high, high]
    }
    const share = ({ model }, pixels) => Math.min(pixels / (model.inner_height || 200), 0.3)  // of the height of a frame
    const draw_curves = (k, u) => {  // mean and band, between frame k (u = 0) and the next one (u = 1)
      const from = lesson.frames[k], to = lesson.frames[Math.min(k + 1, lesson.frames.length - 1)]
      const mean = from.mean.map((value, i) => mix(value, to.mean[i], u))
      const sd = from.sd.map((value, i) => mix(value, to.sd[i], u))
      fill("data", "mean", { x: lesson.x, y: mean })
      fill("data", "band", { x: lesson.x, lower: mean.map((m, i) => m - 2 * sd[i]), upper: mean.map((m, i) => m + 2 * sd[i]) })
      const before = u > 0 ? from : lesson.frames[k - 1]
      fill("data", "before", { x: before ? lesson.x : [], y: before ? before.mean : [] })
      write_labels("data", data_labels(mean, sd, before, u === 0 || u === 1))
    }
    const data_labels = (mean, sd, before, at_rest) => {
      if (!at_rest) return []
      const { start, end } = figures.data.model.y_range, lower = mean.map((m, i) => m - 2 * sd[i])
      const upper = mean.map((m, i) => m + 2 * sd[i])
      const wish = (text, ink, curve, worth, sides) => ({ texts: [text], ink,  // beside a curve; `worth` says where rather
        places: lesson.x.flatMap((x, i) => sides.flatMap(([align, dy]) => [1, 1.6, 2.4].map((away) => (
          { x, y: curve[i], align, dx: away * 9 * DX[align], dy: away * dy, cost: away - worth(i) })))) })
      const apart = (one, other) => (i) => Math.min(6 * Math.abs(one[i] - other[i]) / (end - start), 1) * 4
      const around = [["center", -16], ["center", 16], ["left", 0], ["right", 0]]
      const wishes = [wish("exact model", "exact", lesson.exact.mean, apart(lesson.exact.mean, mean), around),
        wish(`${count(lesson.points)} points \u00b1 2 sd`, "mean", lower, (i) => 4 * sd[i] / (end - start), [["center", 16]])]
      if (before && before.mean.some((value, i) => Math.abs(value - mean[i]) > 0.06 * (end - start)))
        wishes.push(wish("before", "mean", before.mean, (i) => {
          const moved = apart(before.mean, mean)(i)
          return moved < 1 ? -Infinity : moved + apart(before.mean, lesson.exact.mean)(i)
        }, around))
      const lines = [mean, lesson.exact.mean, ...(before ? [before.mean] : [])]
      return placed("data", wishes, { lines: lines.map((y) => pairs(lesson.x, y)), faint: [lower, upper].map((y) => pairs(lesson.x, y)),
        dots: pairs(lesson.rows.x, lesson.rows.y).map((dot) => [...dot, 4]) })
    }
    const draw_points = (k, u) => {  // the hollow triangle on its way along the bracket
      const frame = lesson.frames[k], next = frame.next
      const others = frame.points.filter((id) => id !== next?.removed)
      fill("points", "inducing", { x: others.map((id) => row(id).x), y: others.map(() => 0) })
      if (!next) {
        for (const name of ["removed", "star", "bracket"]) fill("points", name, { x: [], y: [] })
        return
      }
      const from = row(next.removed).x, to = row(next.tested).x
      const way = next.accepted ? ease(u) : ease(u < 0.5 ? 2 * u : 2 - 2 * u)
      fill("points", "removed", { x: [mix(from, to, way)], y: [u > 0 && u < 1 && way < 1 ? -1.2 * Math.sin(Math.PI * Math.min(way, 1)) ** 0.5 : 0] })
      fill("points", "star", point(next.tested, 0))
      const inks = INKS[theme], ink = next.accepted || u < 0.5 ? inks.tested : inks.rows  // grey once it is rejected
      Object.assign(star, { fill_color: ink, line_color: ink })
      const corner = Math.sign(to - from) * Math.min(Math.abs(to - from) / 2, (lesson.x.at(-1) - lesson.x[0]) / 90)
      const bow = (x, turn) => [0, 0.25, 0.5, 0.75, 1].map((v) => [x + turn * (1 - Math.cos(v * Math.PI / 2)), -0.55 - 0.75 * Math.sin(v * Math.PI / 2)])
      const path = [...bow(from, corner), ...bow(to, -corner).reverse()]
      fill("points", "bracket", { x: path.map(([x]) => x), y: path.map(([, y]) => y) })
    }
    const draw_landscape = (k, u = 1) => {  // u < 1: the axis is still on its way from the frame before
      const next = lesson.frames[k].next
      const range = figures.landscape.model.y_range, [low, high] = limits_of(next)
      const [low_before, high_before] = limits_of(lesson.frames[Math.max(k - 1, 0)].next ?? next)
      Object.assign(range, { start: mix(low_before, low, u), end: mix(high_before, high, u) })
      const line = { x: [], exact: [], approx: [] }, area = { x: [], y: [], zero: [] }
      const cover = (x, y) => { area.x.push(x); area.y.push(y); area.zero.push(0) }
      const put = (x, exact, approx) => { line.x.push(x); line.exact.push(exact); line.approx.push(approx) }
      let last = -Infinity
      lesson.rows.x.forEach((x, i) => {
        if (!next || next.exact[i] === null) return
        if (x - last > lesson.gap && line.x.length) { put(x, NaN, NaN); cover(last, 0); cover(x, 0) }
        put(x, next.exact[i], next.approx[i])
        cover(x, next.exact[i])
        last = x
      })
      fill("landscape", "landscape", line)
      fill("landscape", "area", area)
      if (!next) {
        for (const name of ["pivots", "tested", "drop"]) fill("landscape", name, { x: [], y: [] })
        const middle = (lesson.x[0] + lesson.x.at(-1)) / 2
        return write_labels("landscape", k > 0 ? [{ x: middle, y: (low + high) / 2, text: "no further swap", ink: "rows", dy: 0 }] : [])
      }
      const exact_of = (id) => next.exact[row(id).place]
      const { values } = next, x = row(next.tested).x
      fill("landscape", "pivots", { x: next.pivots.map((id) => row(id).x), y: next.pivots.map(exact_of) })
      fill("landscape", "tested", { x: [x], y: [values.tested] })
      fill("landscape", "drop", { x: [x, x], y: [high, values.tested] })
      const span = lesson.x.at(-1) - lesson.x[0], x_best = row(next.best).x
      const beside = ["left", "right", "center"].flatMap((align) => [-12, 0, 14, -26, 24, 36].map((dy) => (
        { x, y: values.tested, align, dx: 13 * DX[align], dy, cost: Math.abs(dy + 12) })))
      const wishes = [{ texts: [`tested: ${shown(values.tested)}`], ink: "tested", places: beside }]
      if (next.best !== next.tested && Math.abs(x_best - x) > 0.12 * span && values.best > 1.15 * Math.max(values.tested, 0) + 1)
        wishes.push({ texts: [`best: ${shown(values.best)}`], ink: "mean",
          places: ["center", "right", "left"].flatMap((align) => [-14, 0].map((dy) => (
            { x: x_best, y: values.best, align, dx: 8 * DX[align], dy, cost: dy + 14 }))) })
      const pivots = next.pivots.length ? `${count(next.pivots.length)} pivots` : "the pivots"
      wishes.push({ texts: [...(is_phone() ? [] : [`predicted from ${pivots} \u25c7`]), "predicted \u25c7"], ink: "predicted",
        places: lesson.rows.x.flatMap((at_x, i) => (next.exact[i] === null ? [] : [13, -13, 30, -30].map((dy) => (  // where it errs most
          { x: at_x, y: next.approx[i], align: "center", dx: 0, dy, shift: true,
            cost: Math.abs(dy) / 8 - (12 * Math.abs(next.exact[i] - next.approx[i])) / (high - low) })))) })
      write_labels("landscape", placed("landscape", wishes, {
        lines: [pairs(line.x, line.exact), pairs(line.x, line.approx), [[x, high], [x, values.tested]]].flatMap(whole),
        dots: [...next.pivots.map((id) => [row(id).x, exact_of(id), 6]), [x, values.tested, 8]] }))
    }
    const draw_curve = (k, u) => {
      const distances = lesson.frames.map((frame) => frame.distance), to = Math.min(k + 1, distances.length - 1)
      const now = mix(distances[k], distances[to], u), place = mix(k, to, u)
      const x = distances.slice(0, k + 1).map((_, i) => i), y = distances.slice(0, k + 1)
      if (u > 0) { x.push(place); y.push(now) }
      fill("curve", "steps", { x, y, zero: y.map(() => 0) })
      fill("curve", "now", { x: [place], y: [now] })
      number.textContent = now < 9.95 ? now.toFixed(1) : now.toFixed(0)
      const gained = k > 0 ? distances[k - 1] - distances[k] : 0
      const newest = gained > 0 ? [`\u2212${shown(gained)} by this swap`, `\u2212${shown(gained)}`] : ["rejected: nothing gained", "rejected"]
      const beside = (place, places) => places.map(([align, dx, dy], cost) => ({ ...place, align, dx, dy, cost }))
      const first = beside({ x: 0, y: distances[0] }, [["left", 12, 0], ...[14, 22, 30, 38].map((dy) => ["left", 4, dy])])
      const floor = Array.from({ length: 4 * lesson.swaps + 1 }, (_, i) => (  // as far at the right as it can be
        { x: i / 4, y: 0, align: "right", dx: 0, dy: -14, cost: lesson.swaps - i / 4 }))
      const around = ["left", "right", "center"].flatMap((align) => [-16, -32, -48, 20].map((dy) => [align, 12 * DX[align], dy]))
      const now_places = beside({ x: k, y: distances[k] }, around)
      write_labels("curve", placed("curve", [
        { texts: ["exact model"], ink: "exact", places: floor },
        { texts: u === 0 && k > 0 ? newest : [], ink: "text", places: now_places },
        { texts: [shown(distances[0])], ink: "soft", places: first },
      ], { lines: [pairs(x, y), [[0, 0], [lesson.swaps, 0]]], dots: [...pairs(x, y).map((dot) => [...dot, 4]), [place, now, 7]] }))
    }
    const sentence = () => {
      const ended = at === lesson.frames.length - 1 && asked === null, m = asked ?? lesson.points
      const had_focus = say.contains(root.getRootNode().activeElement)
      const more = Math.min(m + 2, MOST)
      const word = (text, wanted) => {
        const token = document.createElement(send ? "button" : "strong")
        token.className = "token"
        token.textContent = text
        if (send) {
          Object.assign(token, { type: "button", title: "Another number of points (arrow keys)" })
          token.onclick = () => ask_points(wanted)
          token.onkeydown = (event) => {
            const step = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }[event.key]
            if (!step) return
            event.preventDefault()
            event.stopPropagation()
            ask_soon(Math.min(Math.max(m + step, FEWEST), MOST))
          }
          token.onpointerdown = (event) => scrub_points(event, token)
        }
        return token
      }
      const rows_count = lesson.rows.x.length
      if (ended && more > m && send) say.replaceChildren(`${capital(count(m))} points can do no more. Try `, word(count(more), more), ".")
      else say.replaceChildren(word(capital(count(m)), m === MOST ? FEWEST : m + 1), ` points stand for ${rows_count} rows. Each swap moves one to where it helps most.`)
      if (had_focus) say.querySelector("button")?.focus()  // the next arrow key is for it as well
    }
    let asked = null, asking = 0  // the number of points that keys have asked for, until its lesson has come
    const ask_soon = (m) => {  // keys that are pressed quickly ask once
      asked = m
      sentence()
      clearTimeout(asking)
      asking = setTimeout(() => ask_points(m), 150)
    }
    const ask_points = (m) => {
      if (m !== asked) asked = null
      if (m >= FEWEST && m <= MOST) send({ kind: "points", m })
    }
    const scrub_points = (event, token) => {  // dragging the number sideways changes it
      const begin = event.clientX, m = lesson.points
      let asked = m
      const move = (moved) => {
        const wanted = Math.min(Math.max(m + Math.round((moved.clientX - begin) / 24), FEWEST), MOST)
        if (wanted !== asked) { asked = wanted; token.textContent = capital(count(asked)) }
      }
      const end = () => {
        window.removeEventListener("pointermove", move)
        window.removeEventListener("pointerup", end)
        if (asked !== m) { token.onclick = null; ask_points(asked) }
      }
      window.addEventListener("pointermove", move)
      window.addEventListener("pointerup", end)
    }
    const limit_curve = () => {  // room for the first value above its point
      const highest = Math.max(...lesson.frames.map((frame) => frame.distance))
      Object.assign(figures.curve.model.y_range, { start: 0, end: round_up(highest / (1 - share(figures.curve, 11))) })
    }
    const show = (k) => {
      limit_curve()
      at = Math.min(Math.max(k, 0), lesson.frames.length - 1)
      draw_curves(at, 0)
      draw_points(at, 0)
      draw_landscape(at)
      draw_curve(at, 0)
      hover_values()
      range.value = at
      output.textContent = `swap ${at}`
      range.setAttribute("aria-valuetext", `swap ${at}, ${number.textContent} nat from the exact model`)
      sentence()
    }
    const hover_values = () => {
      const next = lesson.frames[at].next
      const words = (values) => lesson.rows.x.map((_, i) => (next && values[i] !== null ? `${shown(values[i])} nat` : "\u2014"))
      fill("data", "rows", { ...lesson.rows, exact: words(next?.exact ?? []), approx: words(next?.approx ?? []) })
    }

    // -- playback -----------------------------------------------------------------------------------------------
    const swap = (then = () => {}) => {  // from this frame to the next one
      if (at >= lesson.frames.length - 1) return then()
      const k = at, begin = performance.now()
      cancelAnimationFrame(moving)
      if (still.matches) {
        show(k + 1)
        moving = 0
        return then()
      }
      const frame = (now) => {
        const t = now - begin
        const slide = part(t, 0, SLIDE), move = ease(part(t, SLIDE, MOVE)), change = ease(part(t, SLIDE + MOVE, CHANGE))
        if (change < 1) {
          if (move === 0) draw_points(k, slide)
          if (move > 0 || t >= SLIDE) { draw_points(k, 1); draw_curves(k, Math.max(move, 1e-6)); draw_curve(k, Math.max(move, 1e-6)) }
          if (change > 0) { draw_points(k + 1, 0); draw_landscape(k + 1, change) }
          moving = requestAnimationFrame(frame)
        } else {
          moving = 0
          show(k + 1)
          then()
        }
      }
      moving = requestAnimationFrame(frame)
    }
    const set_playing = (value) => {
      playing = value
      play.replaceChildren(icon(value ? "pause" : "play"), value ? "Pause" : "Play")
      if (value && !moving) go_on()
      if (!value) stop_moving()
    }
    let rest = 0
    const go_on = () => {
      if (!playing) return
      if (at >= lesson.frames.length - 1) return set_playing(false)
      swap(() => { rest = setTimeout(go_on, still.matches ? 1000 : REST) })
    }
    const stop_moving = () => {
      clearTimeout(rest)
      if (moving) {
        cancelAnimationFrame(moving)
        moving = 0
        show(at)
      }
    }
    const toggle = () => {
      if (!playing && at >= lesson.frames.length - 1) show(0)
      set_playing(!playing)
    }
    const step_to = (k) => {
      set_playing(false)
      show(k)
    }
    const actions = {
      toggle, back: () => step_to(at - 1), again: () => step_to(0),
      next: () => { set_playing(false); swap() },
      undo: () => send?.({ kind: "undo" }),
    }
    play.onclick = toggle
    find(".skip").onclick = () => play.focus()
    for (const name of ["back", "next", "again"]) find(`.${name}`).onclick = actions[name]
    range.oninput = () => step_to(Number(range.value))
    const KEYS = { " ": "toggle", ArrowRight: "next", ArrowLeft: "back", r: "again", R: "again", u: "undo", U: "undo" }
    const pressed = (event) => {
      const inside = event.composedPath()[0]
      if (event.ctrlKey || event.metaKey || event.altKey || ["INPUT", "TEXTAREA", "SELECT"].includes(inside.tagName)) return
      if (event.key === " " && ["BUTTON", "A"].includes(inside.tagName)) return
      const action = KEYS[event.key]
      if (!action) return
      event.preventDefault()
      actions[action]()
    }

    // -- clicks and drags: another swap than the one that the method would try --------------------------------------
    const nearest = (ids, x) => ids.reduce((best, id) => (Math.abs(row(id).x - x) < Math.abs(row(best).x - x) ? id : best))
    const ask_swap = (request) => send({ kind: "swap", at, ...request })
    const told = ({ detail }) => {
      if (!send) return
      const place = names.find((name) => figures[name].model.id === detail.figure)
      const { frames } = lesson, next = frames[at].next
      if (detail.kind === "tap" && ["data", "landscape"].includes(place) && next) {
        const candidates = lesson.rows.row.filter((_, i) => next.exact[i] !== null)
        set_playing(false)
        ask_swap({ row: nearest(candidates, detail.x), slot: frames[at].points.indexOf(next.removed) })
      } else if (place === "points" && detail.kind === "panstart") {
        set_playing(false)
        drag = frames[at].points.indexOf(nearest(frames[at].points, detail.x))
      } else if (place === "points" && drag !== null) {
        const free = lesson.rows.row.filter((id) => !frames[at].points.includes(id))
        if (detail.kind === "pan")
          fill("points", "inducing", { x: frames[at].points.map((id, slot) => (slot === drag ? detail.x : row(id).x)),
            y: frames[at].points.map(() => 0) })
        if (detail.kind === "panend") {
          ask_swap({ row: nearest(free, detail.x), slot: drag })
          drag = null
        }
      }
    }

    const begin = (given) => {
      lesson = given
      if (lesson.points === asked) asked = null
      set_playing(false)
      rows = new Map(lesson.rows.row.map((id, place) => [id, { x: lesson.rows.x[place], y: lesson.rows.y[place], place }]))
      const span = [lesson.x[0], lesson.x.at(-1)]
      fill("data", "exact", { x: lesson.x, y: lesson.exact.mean })
      fill("points", "floor", { x: span, y: [-0.55, -0.55] })
      fill("landscape", "zero", { x: span, y: [0, 0] })
      fill("curve", "floor", { x: [0, lesson.swaps], y: [0, 0] })
      range.max = lesson.frames.length - 1
      show(lesson.first)
    }
    const fit = () => {  // short words where there is little room, and small marks on a phone
      const small = is_phone()
      for (const [name, long, short] of [["landscape", "decrease for \u25b3 [nat]", "decrease [nat]"], ["curve", "distance [nat]", "nat"]])
        figures[name].model.left[0].axis_label = small || width_of(long) > figures[name].model.inner_height ? short : long
      for (const { model } of Object.values(figures))
        for (const { glyph } of model.renderers) {
          const size = glyph.properties.size
          if (size && !glyph.tags.includes("sized")) glyph.tags = [...glyph.tags, "sized", size.get_value().value]
          if (size) glyph.size = { value: glyph.tags.at(-1) * (small ? 0.72 : 1) }
          if (glyph.tags.includes("labels")) glyph.text_font_size = { value: `${size_of_words()}px` }
        }
    }
    for (const { model } of Object.values(figures))  // labels and limits keep their distance in pixels
      for (const side of ["inner_width", "inner_height"])
        model.properties[side].change.connect(() => {
          if (lesson && !moving) requestAnimationFrame(() => { fit(); show(at) })
        })
    const watched = new ResizeObserver(fit)
    watched.observe(root)
    document.addEventListener("gpexplorer-lesson", told)
    document.addEventListener("keydown", pressed)
    const bar = fill_bar(root, find("nav"), links, paint)
    begin(lesson)
    for (const name of names) {
      const picture = find(`.picture.${name}`)
      picture.setAttribute("role", "img")
      picture.setAttribute("aria-label", ALT[name])
      for (const el of within(picture, "[tabindex]")) el.tabIndex = -1  // the keys of the page work everywhere
    }
    root.dataset.ready = "yes"
    return {
      show: begin,
      say: (words) => { asked = null; say.textContent = words },
      close: () => {
        drawn.clear()
        clearTimeout(asking)
        stop_moving()
        watched.disconnect()
        document.removeEventListener("gpexplorer-lesson", told)
        document.removeEventListener("keydown", pressed)
        bar.close()
      },
    }
  }
})()
