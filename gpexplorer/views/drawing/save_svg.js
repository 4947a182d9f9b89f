const view = Bokeh.index.find_one(figure)
if (view == null) return
view.export("svg").to_blob().then((blob) => {
  const link = document.createElement("a")
  link.href = URL.createObjectURL(blob)
  link.download = "picture.svg"
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
})
