/* How the site orders what a search finds. Sphinx finds the pages that have all words. Their headings come first, by the
   share of the words that a heading and the title of its page have, and by the share of the heading that these words are. */
var Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) =>
    score + (kind === "title" ? 20 : 0) - (docname.startsWith("docs/internals/") ? 5 : docname.startsWith("experiments/") ? 10 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

/* searchtools.js, which defines Search, is loaded before. */
const pagesWith = Search.performTermsSearch;

const stemsOf = (title) => {
  const stemmer = new Stemmer();
  const words = splitQuery(title.toLowerCase()).filter((word) => !stopwords.has(word));
  return new Set(words.map((word) => stemmer.stemWord(word)));
};

Search.performTermsSearch = (words, excluded) => {
  const { alltitles, docnames, filenames, titles } = Search._index;
  const pages = pagesWith(words, excluded);
  const numbers = new Set(pages.map(([docname]) => docnames.indexOf(docname)));
  const headings = [];
  for (const [title, entries] of Object.entries(alltitles)) {
    const inHeading = stemsOf(title);
    const covered = [...inHeading].filter((word) => words.has(word)).length;
    if (covered === 0) continue;
    for (const [number, id] of entries.filter(([number]) => numbers.has(number))) {
      const page = titles[number];
      const inTitle = stemsOf(page);
      const found = [...words].filter((word) => inHeading.has(word) || inTitle.has(word)).length;
      const score = (20 * found) / words.size + (10 * covered) / inHeading.size;
      const shown = page === title ? title : `${page} > ${title}`;
      headings.push([docnames[number], shown, id === null ? "" : `#${id}`, null, score, filenames[number], "title"]);
    }
  }
  return [...pages, ...headings];
};
