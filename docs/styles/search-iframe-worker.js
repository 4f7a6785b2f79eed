// Search in pages that are opened from a disk, where browsers start no workers: the worker's script runs in a hidden frame instead.
// (The plugin `offline` looks for "iframe-worker" in the name of this file, and would else ask another host for such a script.)
(() => {
  "use strict";
  if (location.protocol !== "file:") return;

  const load = (page, url) => new Promise((done, failed) => {
    const script = page.createElement("script");
    script.src = url;
    script.onload = done;
    script.onerror = () => failed(new Error(`${url} could not be loaded`));
    page.body.append(script);
  });

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      // What a worker expects around it. Scripts come one after the other; a worker that can wait gets a promise.
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      inside.importScripts = async (...urls) => { for (const one of urls) await load(inside.document, one); };
      this.frame = frame;
      this.ready = load(inside.document, url);
    }

    postMessage(data) {
      const inside = this.frame.contentWindow;
      this.ready.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data: structuredClone(data) })));
    }

    terminate() { this.frame.remove(); }
  };
})();
