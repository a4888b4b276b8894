// Workers that run the networks, one per method, so that the page stays responsive. Obsolete tasks are dropped.

class Reader {
  constructor(files) {
    const code = $("engine").textContent + $("worker").textContent;
    this.worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
    this.waiting = new Map();
    this.worker.onerror = (event) => complain(`The networks cannot run in this browser (${event.message}).`);
    this.worker.onmessage = ({ data }) => {
      const task = this.waiting.get(data.id);
      if (!task) return;
      if (!data.finished) return task.news(data);
      this.waiting.delete(data.id);
      task.done(data);
    };
    this.worker.postMessage({ files });
  }

  /** Start a task; return a function that drops it. `news` gets interim results, `done` the final one. */
  ask(kind, network, urgency, options, done, news = () => {}) {
    const id = ++Reader.tasks;
    this.waiting.set(id, { done, news });
    this.worker.postMessage({ id, kind, network, urgency, options });
    return () => {
      if (this.waiting.delete(id)) this.worker.postMessage({ cancel: id });
    };
  }

  dropAll() {
    for (const id of this.waiting.keys()) this.worker.postMessage({ cancel: id });
    this.waiting.clear();
  }
}
Reader.tasks = 0;

function complain(text) {
  $("problem").textContent = text;
  $("problem").hidden = false;
}

const bytesOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
