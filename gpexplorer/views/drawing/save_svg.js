const view = Bokeh.index.find_one(figure)
if (view == null) return
// The page writes title and legend beside the figure; the file has them, and the signs of hidden layers are pale.
const shown = [[figure.title, { visible: true }], ...legends.map((one) => [one, { visible: true, click_policy: "hide" }])]
const before = shown.map(([part, values]) => Object.fromEntries(Object.keys(values).map((name) => [name, part[name]])))
const here = { sync: false } // the server need not hear of it
const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))
const save = async () => {
  shown.forEach(([part, values]) => part.setv(values, here))
  try {
    await painted()
    await painted()
    const link = document.createElement("a")
    link.href = URL.createObjectURL(await view.export("svg").to_blob())
    link.download = `${(figure.name || "picture").replace(/[^\p{L}\p{N}]+/gu, "-")}.svg`
    link.click()
    setTimeout(() => URL.revokeObjectURL(link.href), 1000)
  } finally {
    shown.forEach(([part], number) => part.setv(before[number], here))
  }
}
save()
