export function render({ model, el }) {
  const root = document.createElement("div")
  root.className = "lesson"
  el.append(root)
  const player = gpexplorerSideBySide(root, {
    surface: model.surface, links: model.links, send: (request) => model.send_msg(request),
  })
  const add = (key) => model[key] && player.add(key, model[key])
  const time = () => player.time(model.times, model.measuring)
  const say = () => model.notice && player.say(model.notice)
  model.on("surface", () => player.begin(model.surface))
  for (const key of FAMILIES) model.on(key, () => add(key))
  for (const name of ["times", "measuring"]) model.on(name, time)
  model.on("notice", say)
  model.on("remove", () => player.close())
  FAMILIES.forEach(add)
  time()
  say()
}
