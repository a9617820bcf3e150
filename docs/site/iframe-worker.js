// A page opened from a disk may start no worker, and the search of the theme is one: there it runs in a hidden frame.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    const inside = frame.contentWindow;
    window.addEventListener("message", (event) => {
      if (event.source === inside) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
    });
    inside.document.open();
    inside.document.write("<!doctype html><body></body>");
    inside.document.close();
    // A worker's globals, as its script calls them.
    inside.postMessage = (data) => inside.parent.dispatchEvent(new MessageEvent("message", { data, source: inside }));
    const load = (src) =>
      new Promise((loaded, failed) => {
        const script = Object.assign(inside.document.createElement("script"), { src, onload: loaded, onerror: failed });
        inside.document.body.append(script);
      });
    inside.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => load(next)), Promise.resolve());
    this.inside = inside;
    this.started = load(url);
  }

  postMessage(data) {
    this.started.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.inside.frameElement.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
