/* What the screens beside the laboratory share: icons, the links of their bar, the theme, and where people come back to. */
const gpexplorerShell = (() => {
  const THEME = "gpexplorer-theme", PLACE = "gpexplorer-place"
  const SHAPES = {
    play: "M8 5v14l11-7z", pause: "M7 5h4v14H7zM13 5h4v14h-4z", back: "M6 5h2v14H6zM20 5v14L9 12z",
    next: "M16 5h2v14h-2zM4 5v14l11-7z",
    again: "M12 5V1L7 6l5 5V7a5.5 5.5 0 1 1-5.5 5.5h-2A7.5 7.5 0 1 0 12 5z",
    light: "M12.3 3a9 9 0 1 0 8.7 11.2A7.2 7.2 0 0 1 12.3 3z",  // the button shows the theme that it brings
    dark: "M12 7a5 5 0 1 0 0 10 5 5 0 0 0 0-10zM11 1h2v3h-2zM11 20h2v3h-2zM1 11h3v2H1zM20 11h3v2h-3zM4.9 3.5l2.1 2.1-1.4 1.4-2.1-2.1zM18.4 17l2.1 2.1-1.4 1.4-2.1-2.1zM19.1 3.5l1.4 1.4-2.1 2.1-1.4-1.4zM5.6 17l1.4 1.4-2.1 2.1-1.4-1.4z",
  }
  const icon = (name) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg")
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path")
    svg.setAttribute("viewBox", "0 0 24 24")
    svg.setAttribute("aria-hidden", "true")
    path.setAttribute("d", SHAPES[name])
    svg.append(path)
    return svg
  }
  const kept = (name) => { try { return localStorage.getItem(name) } catch { return null } }
  const keep = (name, value) => { try { localStorage.setItem(name, value) } catch {} }
  const leave_for_laboratory = () => {  // who chose the laboratory finds it at the plain address, until they come back
    if (location.search.includes("page=first")) keep(PLACE, "")
    const is_return = performance.getEntriesByType("navigation")[0]?.type === "back_forward"
    if (location.search || is_return || kept(PLACE) !== "laboratory") return false
    location.replace("?page=laboratory")
    return true
  }

  const fill_bar = (root, nav, links, paint) => {  // links to the other pages, and a button for the theme
    for (const [label, address] of Object.entries(links)) {
      const link = document.createElement("a")
      Object.assign(link, { href: address, textContent: label })
      if (address && location.search.includes(address.slice(1))) link.setAttribute("aria-current", "page")
      link.onclick = () => keep(PLACE, label === "Laboratory" ? "laboratory" : "")
      nav.append(link)
    }
    const moon = document.createElement("button")
    Object.assign(moon, { type: "button", className: "icon", title: "Light or dark" })
    moon.setAttribute("aria-label", "Light or dark")
    nav.append(moon)
    const system = window.matchMedia("(prefers-color-scheme: dark)")
    const use = (theme) => {
      root.dataset.theme = theme
      moon.replaceChildren(icon(theme))
      paint(theme)
    }
    const follow_system = () => use(kept(THEME) ?? (system.matches ? "dark" : "light"))
    moon.onclick = () => {
      keep(THEME, root.dataset.theme === "dark" ? "light" : "dark")
      follow_system()
    }
    system.addEventListener("change", follow_system)
    follow_system()
    return { close: () => system.removeEventListener("change", follow_system) }
  }

  return { icon, fill_bar, leave_for_laboratory }
})()
