// Browsers refuse web workers to pages opened from a file, and the search runs in one. This gives such pages a Worker that
// runs its script in a hidden frame instead, so that the search works without a server and without a network.
class FrameWorker extends EventTarget {
  constructor(url) {
    super()
    this.frame = document.createElement("iframe")
    this.frame.hidden = true
    document.body.append(this.frame)
    this.scope = this.frame.contentWindow
    const page = this.scope.document
    page.open()
    page.write(`<body><script>
      var postMessage = (data) => parent.postMessage(data, "*")
      var importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done) => {
        const script = document.createElement("script")
        script.src = url
        script.onload = done
        document.body.append(script)
      })), Promise.resolve())
    <\/script><script src="${url}"><\/script></body>`)
    page.close()
    this.ready = new Promise((done) => { this.scope.onload = done })
    window.addEventListener("message", (event) => {
      if (event.source !== this.scope) return
      const answer = new MessageEvent("message", { data: event.data })
      this.dispatchEvent(answer)
      if (this.onmessage) this.onmessage(answer)
    })
  }
  postMessage(data) {
    const copy = structuredClone(data)
    this.ready = this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data: copy })))
  }
  terminate() { this.frame.remove() }
}
if (location.protocol === "file:") window.Worker = FrameWorker
