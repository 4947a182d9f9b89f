export function render({ model, el }) {
  const root = document.createElement("div")
  root.className = "lesson"
  el.append(root)
  const begun = gpexplorerLesson(root, {
    lesson: model.lesson, document: model.figures, links: model.links, send: (request) => model.send_msg(request),
  })
  const tell = (what) => begun.then(what)
  if (model.notice) begun.then((player) => player.say(model.notice))
  model.on("lesson", () => tell((player) => player.show(model.lesson)))
  model.on("notice", () => model.notice && tell((player) => player.say(model.notice)))
  model.on("remove", () => tell((player) => player.close()))
}
