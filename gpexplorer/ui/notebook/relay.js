// A page of the kernel inside a cell: an iframe whose files and whose websocket come through the comm of the widget.
//
// Nothing is fetched from a server and nothing but a reference is saved with the notebook. Files are kept as blobs, so
// that a second page of the same notebook does not load them again. Bytes go through the comm as base64 (see relay.py).

const ADDRESS = /(["'(=])([./]*static\/(?:js|extensions)\/[^"'()\s\\]+)/g
const files = (window.gpexplorerFiles ??= new Map()) // path -> promise of the address of its blob

const isDark = () =>
  document.body.dataset.jpThemeLight === "false" ||
  document.body.dataset.vscodeThemeKind?.includes("dark") ||
  document.documentElement.getAttribute("theme") === "dark"

const decoded = (base64) => {
  const binary = atob(base64)
  const bytes = new Uint8Array(binary.length)
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at)
  return bytes
}

const encoded = (bytes) => {
  let binary = ""
  for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000))
  return btoa(binary)
}

/** Replace the addresses of files by those of blobs; `load` gives the address of the blob of a path. */
async function localise(text, load) {
  const paths = [...new Set([...text.matchAll(ADDRESS)].map((match) => match[2]))]
  if (!paths.length) return text
  const blobs = new Map(await Promise.all(paths.map(async (path) => [path, await load(path)])))
  return text.replace(ADDRESS, (_, before, path) => before + blobs.get(path))
}

/** A class that looks like WebSocket to the page inside `frame`. Its messages go through `relay`. */
function socketClass(frame, relay) {
  return class extends EventTarget {
    static CONNECTING = 0
    static OPEN = 1
    static CLOSING = 2
    static CLOSED = 3

    constructor(_, [protocol, token]) {
      super()
      Object.assign(this, { protocol, readyState: 0, waiting: [], order: Promise.resolve() })
      relay.connect(this, token)
    }

    send(fragment) {
      if (!this.waiting.length) setTimeout(() => relay.send(this.waiting.splice(0)))
      this.waiting.push(fragment)
    }

    close() {
      relay.disconnect()
      this.happen("close", { code: 1000, reason: "", wasClean: true })
    }

    receive(fragments) {
      const { ArrayBuffer, Uint8Array } = frame.contentWindow // Bokeh asks whether a fragment is an ArrayBuffer of its own
      for (const fragment of fragments)
        this.order = this.order.then(async () => {
          if (typeof fragment === "string") return this.happen("message", { data: await localise(fragment, relay.load) })
          const bytes = decoded(fragment.base64)
          const data = new ArrayBuffer(bytes.length)
          new Uint8Array(data).set(bytes)
          this.happen("message", { data })
        })
    }

    happen(type, fields = {}) {
      if (type === "open") this.readyState = 1
      if (type === "close") this.readyState = 3
      const event = Object.assign(new Event(type), fields)
      this[`on${type}`]?.(event)
      this.dispatchEvent(event)
    }
  }
}

function render({ model, el }) {
  const view = Math.random().toString(36).slice(2)
  const frame = document.createElement("iframe")
  const notice = document.createElement("p")
  const answers = new Map()
  let [asked, socket, fresh] = [0, null, false]

  const tell = (message) => model.send({ ...message, view })
  const ask = (message) =>
    new Promise((resolve) => {
      answers.set(++asked, resolve)
      tell({ ...message, id: asked })
    })
  const relay = {
    load(path) {
      if (!files.has(path))
        files.set(
          path,
          ask({ ask: "file", path }).then(({ type, base64 }) =>
            URL.createObjectURL(new Blob([decoded(base64)], { type })),
          ),
        )
      return files.get(path)
    },
    async connect(newSocket, token) {
      socket = newSocket
      await ask({ ask: "connect", token })
      newSocket.happen("open")
    },
    send(fragments) {
      const asText = (part) => (typeof part === "string" ? part : { base64: encoded(new Uint8Array(part)) })
      tell({ ask: "send", fragments: fragments.map(asText) })
    },
    disconnect: () => tell({ ask: "disconnect" }),
  }
  const receive = (message) => {
    if (message.view !== view) return
    if (message.id) {
      answers.get(message.id)?.(message)
      answers.delete(message.id)
    } else if (message.fragments) socket?.receive(message.fragments)
    else if (message.ended) socket?.happen("close", { code: 1000, reason: "", wasClean: true })
    else if (message.notice) say(message.notice)
  }
  const say = (sentence) => {
    notice.textContent = sentence
    notice.hidden = !sentence
    frame.hidden = Boolean(sentence)
  }
  const show = async () => {
    const message = await ask({ ask: "page", dark: isDark() })
    if (message.notice) return say(message.notice)
    const page = await localise(message.page, relay.load)
    frame.relay = socketClass(frame, relay)
    fresh = true
    frame.srcdoc = page.replace("<head>", "<head><script>window.WebSocket = window.frameElement.relay</script>")
  }
  const followTheme = () => {
    for (const doc of frame.contentWindow?.Bokeh?.documents ?? [])
      for (const root of doc.roots())
        if (root.data && "dark_theme" in root.data && root.data.dark_theme !== isDark()) root.data.dark_theme = isDark()
  }
  const resize = new ResizeObserver(() => {
    const body = frame.contentDocument?.body
    if (body) frame.style.height = `${Math.ceil(body.scrollHeight)}px`
  })
  frame.addEventListener("load", () => {
    if (!frame.srcdoc) return
    if (!fresh) return show() // the front end took the output out of the notebook and put it back
    fresh = false
    if (!model.get("height")) resize.observe(frame.contentDocument.body)
  })
  const themes = new MutationObserver(followTheme)
  themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind"] })
  // JupyterLab lets the focus stay in what belongs to the active cell: after a click on the cell's prompt, Shift+Enter
  // would still go to the page in the frame. So the frame gives the focus up when something outside it is clicked.
  const giveUpFocus = () => document.activeElement === frame && frame.blur()
  document.addEventListener("pointerdown", giveUpFocus, true)
  const beat = setInterval(() => tell({ ask: "beat" }), 20_000)

  Object.assign(frame, { title: model.get("title"), allow: "clipboard-write; fullscreen" })
  Object.assign(frame.style, { display: "block", width: "100%", border: "0", height: `${model.get("height") || 120}px` })
  Object.assign(notice, { hidden: true })
  el.append(frame, notice)
  model.on("msg:custom", receive)
  show()
  return () => {
    clearInterval(beat)
    document.removeEventListener("pointerdown", giveUpFocus, true)
    themes.disconnect()
    resize.disconnect()
    model.off("msg:custom", receive)
    tell({ ask: "disconnect" })
  }
}

export default { render }
