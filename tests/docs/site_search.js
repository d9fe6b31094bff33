// The search of a built site without a browser: node site_search.js SITE < questions, one a line.
// Prints the three best hits of each as a line of JSON.
const fs = require("fs"), vm = require("vm");
const site = process.argv[2];
const world = vm.createContext({
  window: {}, document: { getElementById: () => null }, localStorage: { setItem() {} }, SPHINX_HIGHLIGHT_ENABLED: false,
  DOCUMENTATION_OPTIONS: {}, _ready: () => {}, _: (text) => text,
});
const read = (file) => vm.runInContext(fs.readFileSync(`${site}/${file}`, "utf-8").replace("window.Stemmer =", "var Stemmer ="), world);
// As search.html loads them.
["_static/sections.js", "_static/searchtools.js", "_static/language_data.js", "searchindex.js"].forEach(read);
for (const question of fs.readFileSync(0, "utf-8").trim().split("\n")) {
  world.question = question;
  const hits = vm.runInContext("Search._performSearch(...Search._parseQuery(question))", world).reverse();
  console.log(JSON.stringify(hits.slice(0, 3).map(([page, , anchor]) => page + anchor)));
}
