// Browsers start no workers for a page that is opened from disk; the search then runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.started = new Promise((start) => {
        const frame = document.createElement("iframe");
        frame.hidden = true;
        frame.srcdoc = "<!doctype html><title>search</title>";
        frame.addEventListener("load", () => {
          const inside = frame.contentWindow;
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = frame.contentDocument.createElement("script");
          script.src = url;
          script.addEventListener("load", () => start(inside));
          frame.contentDocument.head.append(script);
        });
        document.documentElement.append(frame);
      });
    }

    postMessage(data) {
      this.started.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
