// The search of a built site without a browser: node site_search.js SITE < questions, one a line.
// Prints the three best hits of each as a line of JSON.
const fs = require("fs"), vm = require("vm");
const site = process.argv[2];
const listeners = [];
const listen = (_, run) => listeners.push(run);
const document = { readyState: "loading", addEventListener: listen, getElementById: () => null };
const world = vm.createContext({
  window: {}, document, addEventListener: listen, localStorage: { setItem() {} }, SPHINX_HIGHLIGHT_ENABLED: false,
  DOCUMENTATION_OPTIONS: {}, _ready: () => {}, _: (text) => text,
});
const read = (file) => vm.runInContext(fs.readFileSync(`${site}/${file}`, "utf-8").replace("window.Stemmer =", "var Stemmer ="), world);
["_static/language_data.js", "_static/searchtools.js"].forEach(read);
listeners.forEach((run) => run());
read("searchindex.js");
for (const question of fs.readFileSync(0, "utf-8").trim().split("\n")) {
  world.question = question;
  const hits = vm.runInContext("Search._performSearch(...Search._parseQuery(question))", world).reverse();
  console.log(JSON.stringify(hits.slice(0, 3).map(([page, , anchor]) => page + anchor)));
}
