// Plays the frames of a saved run: replaces the columns, ranges and words of figures that Bokeh has drawn once.
(async () => {
  const part = (id) => document.getElementById(id)

  // The digest of page_file.py: of all words and numbers. Pages from a server without https have no crypto.subtle.
  async function isWhole() {
    const words = document.querySelector("h1").textContent + document.querySelector("main").textContent
    const all = new TextEncoder().encode(words + part("content").textContent + part("frames").textContent + part("bokeh").textContent)
    const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", all))
    return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("") === document.body.dataset.digest
  }

  if (globalThis.crypto?.subtle && !(await isWhole()))
    throw new Error("it was changed after it was saved. Save the page again, or copy it again from where it came from")
  await gpexplorerBokeh()
  const content = JSON.parse(new TextDecoder().decode(await gpexplorerBytes("content")))
  const ARRAYS = { f4: Float32Array, f8: Float64Array, i4: Int32Array, g4: Float32Array, q2: Uint16Array }

  // Undoes PackedColumns: bytes in the order of their place in the number, combined with the entry before.
  function unpack(columns, bytes, start) {
    let before = null
    for (const entry of columns.entries) {
      const [kind, extent] = entry
      if (kind === "json") { entry.push(extent); continue }
      const count = Array.isArray(extent) ? extent[0] * extent[1] : extent
      const size = ARRAYS[kind].BYTES_PER_ELEMENT
      const raw = new Uint8Array(count * size)
      for (let place = 0; place < size; place++)
        for (let k = 0; k < count; k++) raw[k * size + place] = bytes[start + place * count + k]
      const values = new ARRAYS[kind](raw.buffer)
      const continued = before !== null && before.kind === kind && before.raw.length === raw.length
      if (kind === "q2") {  // levels: the changes of the rows above are added, and the levels of the entry before
        for (let k = extent[1]; k < count; k++) values[k] += values[k - extent[1]]
        if (continued) for (let k = 0; k < count; k++) values[k] += before.values[k]
      } else if (continued) for (let k = 0; k < raw.length; k++) raw[k] ^= before.raw[k]
      before = { kind, raw, values }
      start += raw.length
      entry.push(kind === "q2" ? Float32Array.from(values, (level) => extent[2] + extent[3] * level) : values)
    }
    return start
  }

  function allFigures() { return content.runs.flatMap((run) => run.figures) }

  function shownValues(entry, current) {
    const [kind, extent, values] = entry
    if (!["g4", "q2"].includes(kind)) return values
    const old = current[0]  // an array of Bokeh with a shape, whose class is not public
    return [new old.constructor(values, extent.slice(0, 2))]
  }

  function showFrame(figure, model, frame, caption) {
    for (const [source, columns] of Object.entries(figure.columns)) {
      const shown = model(source), current = shown.data, data = {}
      let changed = figure.frame === undefined
      for (const [name, column] of Object.entries(columns)) {
        const entry = column.entries[column.at[frame]]
        changed ||= column.at[frame] !== column.at[figure.frame]
        if (entry[2] === null) continue
        data[name] = shownValues(entry, current instanceof Map ? current.get(name) : current[name])
      }
      if (changed) shown.data = data
    }
    for (const [id, values] of Object.entries(figure.properties.entries[figure.properties.at[frame]])) model(id).setv(values)
    caption.textContent = figure.captions[frame]
    figure.frame = frame
  }

  // As side by side on the page: what two runs show of one quantity has the same ends.
  function shareAxes(model) {
    for (const sides of content.shared) {
      const ends = sides.map(([number, range], run) => {
        const { at, entries } = content.runs[run].figures[number].properties
        return entries[at[content.frames[place][run]]][range]
      })
      const both = { start: Math.min(...ends.map((end) => end.start)), end: Math.max(...ends.map((end) => end.end)) }
      for (const [, range] of sides) model(range).setv(both)
    }
  }

  function writeFacts(list, facts) {
    list.replaceChildren(...Object.entries(facts).map(([label, value]) => {
      const fact = document.createElement("div"), dt = document.createElement("dt"), dd = document.createElement("dd")
      dt.textContent = label
      dd.textContent = value
      fact.append(dt, dd)
      return fact
    }))
  }

  function writeLegend(place, figure, model) {
    for (const entry of figure.legend) {
      const button = document.createElement("button"), sign = document.createElement("span")
      sign.textContent = entry.sign
      sign.style.opacity = entry.alpha
      entry.signs = sign
      button.append(sign, " " + entry.label)
      button.setAttribute("aria-pressed", "true")
      button.title = "Show or hide"
      button.addEventListener("click", () => {
        const visible = button.getAttribute("aria-pressed") !== "true"
        for (const layer of entry.layers) model(layer).visible = visible
        button.setAttribute("aria-pressed", String(visible))
      })
      place.append(button)
    }
  }

  function setTheme(dark, model, light) {
    for (const figure of allFigures()) {
      for (const [id, values] of Object.entries(figure.dark)) {
        const shown = model(id)
        light[id] ??= Object.fromEntries(Object.keys(values).map((name) => [name, shown[name]]))
        shown.setv(dark ? values : light[id])
      }
      for (const entry of figure.legend) entry.signs.style.color = dark ? entry.dark : entry.light
    }
  }

  let start = 0
  const bytes = await gpexplorerBytes("frames")
  for (const figure of allFigures())
    for (const columns of Object.values(figure.columns))
      for (const column of Object.values(columns)) start = unpack(column, bytes, start)
  await Bokeh.embed.embed_items(content.docs, content.items)
  const drawn = Bokeh.documents[Bokeh.documents.length - 1]
  const model = (id) => drawn.get_model_by_id(id)
  const cards = new Map(allFigures().map((figure) =>
    [figure, document.querySelector(`article[data-figure="${CSS.escape(figure.id)}"]`)]))
  for (const [figure, card] of cards) writeLegend(card.querySelector(".legend"), figure, model)

  const slider = part("place"), last = content.names.length - 1
  slider.max = last
  let timer = null, place = 0

  function show(wanted) {
    place = Math.min(Math.max(wanted, 0), last)
    slider.value = place
    part("name").textContent = content.names[place]
    slider.setAttribute("aria-valuetext", content.names[place])
    content.runs.forEach((run, number) => {
      const frame = content.frames[place][number]
      for (const figure of run.figures) {
        if (figure.frame !== frame) showFrame(figure, model, frame, cards.get(figure).querySelector(".caption"))
      }
      writeFacts(document.querySelectorAll("dl.facts")[number], run.facts[frame])
    })
    shareAxes(model)
  }

  function pause() {
    clearInterval(timer)
    timer = null
    part("play").textContent = "▶ Play"
    try {
      history.replaceState(null, "", "#" + encodeURIComponent(content.names[place].replace(" ", "=")))
    } catch { /* some viewers of files do not allow it */ }
  }

  function play() {
    if (place === last) show(0)
    clearInterval(timer)
    timer = setInterval(() => { place < last ? show(place + 1) : pause() }, 1000 / Number(part("speed").value))
    part("play").textContent = "❚❚ Pause"
  }

  function toggle() { timer === null ? play() : pause() }
  function jump(to) { pause(); show(to); pause() }

  function showAddress() {
    const [, number] = decodeURIComponent(location.hash).match(/^#step=(\d+)$/) ?? []
    if (number === undefined || content.aligned !== "step") return false
    const steps = content.names.map((name) => Math.abs(Number(name.slice(5)) - Number(number)))
    show(steps.indexOf(Math.min(...steps)))
    return true
  }

  part("play").addEventListener("click", toggle)
  part("back").addEventListener("click", () => jump(place - 1))
  part("forward").addEventListener("click", () => jump(place + 1))
  part("speed").addEventListener("change", () => { if (timer !== null) play() })
  slider.addEventListener("input", () => jump(Number(slider.value)))
  window.addEventListener("hashchange", showAddress)
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select, button, summary") || event.ctrlKey || event.metaKey || event.altKey) return
    const actions = { " ": toggle, ArrowLeft: () => jump(place - 1), ArrowRight: () => jump(place + 1) }
    if (event.key in actions) { event.preventDefault(); actions[event.key]() }
  })
  const preference = matchMedia("(prefers-color-scheme: dark)"), light = {}
  preference.addEventListener("change", (event) => setTheme(event.matches, model, light))
  if (!showAddress()) show(0)
  setTheme(preference.matches, model, light)  // last: from a change of colour on, Bokeh reads columns for a while
  part("problem").hidden = true
  document.body.dataset.ready = "true"
})().catch((error) => {
  const problem = document.getElementById("problem")
  problem.textContent = `The pictures of this file cannot be played: ${error.message}.`
  console.error(error)
})
