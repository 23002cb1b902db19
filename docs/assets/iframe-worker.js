// Browsers do not start workers from files on disk. There, the search runs in a hidden frame with a worker's interface.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      const base = new URL(address, location.href)
      const waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      inside.document.open()
      inside.document.write("<!doctype html><body></body>")
      inside.document.close()
      // The worker's side: what it posts arrives here, and scripts that it imports are loaded as elements.
      inside.postMessage = (data) => {
        const message = new MessageEvent("message", { data })
        this.onmessage?.(message)
        this.dispatchEvent(message)
      }
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script")
          Object.assign(script, { src: new URL(source, base).href, onload: resolve, onerror: reject })
          inside.document.body.append(script)
        })
      inside.importScripts = (...sources) => sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve())
      this.postMessage = (data) => waiting.push(data)
      load(base.href).then(() => {
        this.postMessage = (data) => inside.dispatchEvent(new MessageEvent("message", { data }))
        waiting.splice(0).forEach(this.postMessage)
      })
      this.terminate = () => frame.remove()
    }
  }
}
