// Runs the program of Bokeh, which lies in the page compressed: a third of its bytes.
const gpexplorerBytes = async (id) => {
  const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0))
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))
  return new Uint8Array(await new Response(stream).arrayBuffer())
}
const gpexplorerBokeh = async () => (0, eval)(new TextDecoder().decode(await gpexplorerBytes("bokeh")))
