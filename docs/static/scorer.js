// What the search shows first: a heading that is the word, then the pages for users, and last the others.
const _LAST = /^(CHANGELOG|CONTRIBUTING|docs\/architecture|docs\/design-notes|tests\/parity\/PARITY|notebooks\/\d.*)$/;

var Scorer = {
  score: ([page, , , , score, , kind]) =>
    (score + (kind === "title" ? 10 : 0)) / (_LAST.test(page) ? 10 : 1),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
