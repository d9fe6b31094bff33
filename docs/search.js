/* How the site orders what a search finds. Sphinx finds only pages that have all words. Here a page or a heading counts by
   the words that it has: a rare word counts more than a frequent one, and a word in a heading more than one in the text. */
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

/* Readers' words, and the words of these pages for the same thing. */
const WORDS_OF_THE_PAGES = {
  bibtex: "cite", commercially: "license", convert: "export", create: "build", csv: "table", custom: "use extend",
  different: "other", domain: "corpora", fewer: "limit", finetune: "fine tune", finetuning: "fine tune",
  huggingface: "hugging", max: "limit", metrics: "scores", multi: "several", multiple: "several", oom: "memory",
  package: "install", parallel: "gpus", patience: "early", plot: "see draw", pretrained: "init", reuse: "take",
  sentencepiece: "tokenizer", standalone: "script", top: "best", tsv: "table", visualize: "see draw", zero: "low",
};

const stemmer = new Stemmer();
const alike = new Map();
for (const [word, others] of Object.entries(WORDS_OF_THE_PAGES))
  alike.set(stemmer.stemWord(word), others.split(" ").map((other) => stemmer.stemWord(other)));

const stemsOf = (title) => {
  const words = splitQuery(title.toLowerCase()).filter((word) => !stopwords.has(word));
  return new Set(words.map((word) => stemmer.stemWord(word)));
};

/* searchtools.js, which defines Search, is loaded before. */
const pagesWith = Search.performTermsSearch;

Search.performTermsSearch = (words, excluded) => {
  const { alltitles, docnames, filenames, titles } = Search._index;
  const asked = [...words].map((word) => {
    const forms = [word, ...(alike.get(word) ?? [])];
    const scores = new Map(forms.flatMap((form) => pagesWith(new Set([form]), excluded)).map((page) => [page[0], page]));
    return { forms, scores, weight: Math.log(1 + docnames.length / (1 + scores.size)) };
  });
  const total = asked.reduce((sum, { weight }) => sum + weight, 0);
  const share = (has) => asked.reduce((sum, word) => sum + (has(word) ? word.weight : 0), 0) / total;
  const results = [];
  const shares = docnames.map((name) => share(({ scores }) => scores.has(name)));
  const best = Math.max(...shares);
  shares.forEach((inText, number) => {
    if (inText < 0.5 * best || inText === 0) return;
    const [name, page, file] = [docnames[number], titles[number], filenames[number]];
    const score = Math.max(...asked.map(({ scores }) => scores.get(name)?.[4] ?? 0));
    results.push([name, page, "", null, score + 20 * (inText - 1), file, "text"]);
  });
  for (const [title, entries] of Object.entries(alltitles)) {
    const inHeading = stemsOf(title);
    const covered = [...inHeading].filter((stem) => asked.some(({ forms }) => forms.includes(stem))).length;
    if (covered === 0) continue;
    for (const [number, id] of entries) {
      const page = titles[number];
      const stems = new Set([...inHeading, ...stemsOf(page)]);
      const found = share(({ forms }) => forms.some((form) => stems.has(form)));
      const score = 20 * found + 20 * (shares[number] - 1) + (10 * covered) / inHeading.size;
      results.push([docnames[number], page === title ? title : `${page} > ${title}`, id === null ? "" : `#${id}`, null, score, filenames[number], "title"]);
    }
  }
  return results;
};
