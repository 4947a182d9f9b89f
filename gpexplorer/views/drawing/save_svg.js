// The page writes title and legend beside the figure. The file has them above the plot, which keeps the size that it has
// on the screen, so that the file is higher; the signs of hidden layers are pale.
const view = Bokeh.index.find_one(figure)
if (view == null) return
const here = { sync: false } // the server need not hear of it
const undone = []
const set = (part, values) => {
  const before = Object.keys(values).map((name) => [name, part[name]])
  const stays = ([name]) => part[name] === values[name] // else the server has sent another value
  undone.unshift(() => part.setv(Object.fromEntries(before.filter(stays)), here))
  part.setv(values, here)
}
const laidOut = async () => {
  for (let frame = 0; frame < 2; frame++) await new Promise((done) => requestAnimationFrame(() => setTimeout(done)))
}
const inLines = (text, drawn, width) => {
  const pen = document.createElement("canvas").getContext("2d") // in another font than the title's
  const scale = drawn / pen.measureText(text).width
  return text.split(" ").reduce((lines, word) => {
    const line = `${lines.slice(lines.lastIndexOf("\n") + 1)} ${word}`
    return `${lines}${scale * pen.measureText(line).width <= width ? " " : "\n"}${word}`
  })
}
const save = async () => {
  try {
    const height = figure.inner_height
    set(figure.title, { visible: true })
    legends.forEach((legend) => set(legend, { visible: true, click_policy: "hide" }))
    set(figure, { min_height: figure.outer_height + 1 }) // Bokeh lays out no title that has only become visible
    await laidOut()
    const { width } = view.views.find_one(figure.title).get_size()
    set(figure.title, { text: inLines(figure.title.text, width, figure.inner_width) })
    set(figure, { min_height: figure.outer_height + 1 })
    await laidOut()
    for (const legend of legends) {
      while (legend.ncols > 1 && view.views.find_one(legend).bbox.right > figure.outer_width) {
        set(legend, { ncols: legend.ncols - 1 })
        await laidOut()
      }
    }
    for (let round = 0; round < 5 && Math.abs(height - figure.inner_height) >= 1; round++) {
      set(figure, { min_height: figure.outer_height + height - figure.inner_height })
      await laidOut()
    }
    const link = document.createElement("a")
    link.href = URL.createObjectURL(await view.export("svg").to_blob())
    link.download = `${(figure.name || "picture").replace(/[^\p{L}\p{N}]+/gu, "-")}.svg`
    link.click()
    setTimeout(() => URL.revokeObjectURL(link.href), 1000)
  } finally {
    undone.forEach((undo) => undo())
  }
}
save()
