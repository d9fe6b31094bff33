/* How the site finds sections. Sphinx finds only pages that have all words. Here a section counts by the words of the
   query that it has. A rare word counts more than a frequent one, a word in the heading or in the title of the page
   more than one in the text, and one in a short text more than one in a long text. conf.py writes SECTIONS. */
var Scorer = {
  score: ([docname, title, anchor, descr, score]) =>
    score - (docname.startsWith("docs/internals/") ? 5 : docname.startsWith("experiments/") ? 10 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

/* Readers' words, and the words of these pages for the same thing. */
const WORDS_OF_THE_PAGES = {
  bibtex: "cite", commercially: "license", convert: "export", create: "build", csv: "table", fewer: "limit",
  gpt: "language", huggingface: "hugging", max: "limit", multiple: "several", oom: "memory", parallel: "gpus",
  plot: "see draw", reuse: "take", standalone: "script", tsv: "table", visualize: "see draw", vocab: "vocabulary",
};

const stemmer = new Stemmer();
const stemsOf = (text) => {
  const parts = text.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter((word) => word.length > 1 && !stopwords.has(word));
  const joined = [...text.toLowerCase().matchAll(/(\w+)-(\w+)/g)].map(([, first, second]) => first + second);
  return new Set([...parts, ...joined].map((word) => stemmer.stemWord(word)));
};
const alike = new Map();
for (const [word, others] of Object.entries(WORDS_OF_THE_PAGES))
  alike.set(stemmer.stemWord(word), [...stemsOf(others)]);

/* searchtools.js, which defines Search, is loaded before. */
Search.performTermsSearch = (words, excluded) => {
  const { docnames, filenames, titles } = Search._index;
  const { sections, sizes, places } = SECTIONS;
  const placesOf = (stem) => (Object.hasOwn(places, stem) ? places[stem] : []);
  const mean = sizes.reduce((sum, size) => sum + size, 0) / sizes.length;
  const split = [...words].flatMap((word) => word.split("_"));
  const parts = new Set(split.filter((word) => word.length > 1 && word !== "use"));
  const asked = [...(parts.size ? parts : words)].map((word) => {
    let forms = [word, ...(alike.get(word) ?? [])];
    if (!forms.some((form) => placesOf(form).length)) forms = Object.keys(places).filter((stem) => stem.includes(word));
    const at = new Set(forms.flatMap(placesOf));
    return { forms, at, weight: Math.log(1 + sections.length / (1 + at.size)) };
  });
  const total = asked.reduce((sum, { weight }) => sum + weight, 0);
  const results = [];
  sections.forEach(([docname, anchor, heading], number) => {
    if ([...excluded].some((word) => placesOf(word).includes(number))) return;
    const page = titles[docnames.indexOf(docname)];
    const [inHeading, inTitle] = [stemsOf(heading), stemsOf(page)];
    const counts = asked.map(({ forms, at, weight }) => {
      const has = (stems) => forms.some((form) => stems.has(form));
      const text = at.has(number) ? 1 / (0.7 + (0.3 * sizes[number]) / mean) : 0;
      return weight * (text + (has(inHeading) ? 2 : has(inTitle) ? 1 : 0));
    });
    const sum = counts.reduce((sum, count) => sum + count, 0);
    if (sum === 0) return;
    const covered = [...inHeading].filter((stem) => asked.some(({ forms }) => forms.includes(stem))).length;
    const score = (20 * sum) / total + (10 * covered) / (inHeading.size + 1);
    const shown = page === heading ? page : `${page} > ${heading}`;
    results.push([docname, shown, anchor && `#${anchor}`, null, score, filenames[docnames.indexOf(docname)], "title"]);
  });
  return results.sort((one, other) => other[4] - one[4]).slice(0, 30);
};
