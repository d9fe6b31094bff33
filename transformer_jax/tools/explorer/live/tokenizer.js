"use strict";
// Text to ids and back, as data/tokenizers does in Python. A table has: kind, pieces, and for subwords scores and bytes (ids of
// the 256 bytes).

const SPACE_SIGN = "\u2581", ESCAPE = "\x1b", BYTE_MARK = "\u22ef";
// As data/text_files.py: control characters, spaces, and letters and marks that Unicode calls ignorable.
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Z}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\u{e0100}-\u{e01ef}]/u;
const wellFormed = (text) => text.replace(/\p{Surrogate}/gu, "\ufffd");

function makeTokenizer(table) {
  return new ({ bpe: BytePairTokenizer, unigram: UnigramTokenizer, byte: ByteTokenizer }[table.kind] || UnitTokenizer)(table);
}

// The text of consecutive ids: a character that several bytes spell stands at the last, a mark at the others.
function shownPieces({ pieces }, ids) {
  let spelled = [];
  return ids.map((id) => {
    const byte = /^<0x([0-9A-F]{2})>$/.exec(pieces[id]);
    const number = byte ? parseInt(byte[1], 16) : 0;
    spelled = number >> 6 === 2 ? [...spelled, number] : byte ? [number] : []; // Bytes from 0x80 to 0xBF continue a character.
    if (!byte) return pieces[id];
    if (spelled.length < 1 + [0xc0, 0xe0, 0xf0].filter((least) => spelled[0] >= least).length) return BYTE_MARK;
    const [letter] = new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(spelled));
    spelled = [];
    return letter === " " ? letter : letter.replace(INVISIBLE, (hidden) => `<U+${hidden.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}>`);
  });
}

// The parts of a text that unseen tokens spell: whole characters where tokens are bytes.
function unseenParts(tokenizer, text, unseen) {
  const ids = tokenizer.encode(text), parts = tokenizer.units ? tokenizer.units(text) : shownPieces(tokenizer, ids), found = [];
  let isUnseen = false;
  ids.forEach((id, index) => {
    isUnseen = isUnseen || unseen.has(id);
    if (parts[index] === BYTE_MARK) return;
    found.push(isUnseen ? parts[index].replaceAll(SPACE_SIGN, " ") : " ");
    isUnseen = false;
  });
  return [...new Set(found.join("").split(" ").filter((part) => part))];
}

class SubwordTokenizer {
  constructor({ pieces, scores, bytes, mergeable }) {
    Object.assign(this, { pieces, scores, bytes });
    this.ids = new Map(mergeable.map((id) => [pieces[id], id]));
    this.byteOf = new Map(bytes.map((id, byte) => [id, byte]));
  }
  encode(text) {
    if (!text) return [];
    const escaped = wellFormed(text).replaceAll(ESCAPE, ESCAPE + "0").replaceAll(SPACE_SIGN, ESCAPE + "1");
    return this.split([...(" " + escaped).replaceAll(" ", SPACE_SIGN)]).flatMap((piece) => this.ids.has(piece) ? [this.ids.get(piece)]
      : [...new TextEncoder().encode(piece)].map((byte) => this.bytes[byte]));
  }
  decode(ids) {
    const kept = ids.filter((id) => ![PAD, BOS, EOS].includes(id)), bytes = [], utf8 = new TextEncoder();
    for (const id of kept) {
      if (this.byteOf.has(id)) bytes.push(this.byteOf.get(id));
      else bytes.push(...utf8.encode(id === UNK ? " \u2047 " : this.pieces[id]));
    }
    const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes)).replace(/^\u2581/, "").replaceAll(SPACE_SIGN, " ");
    return text.replaceAll(ESCAPE + "1", SPACE_SIGN).replaceAll(ESCAPE + "0", ESCAPE);
  }
}

// Merges the neighbors with the best score until none is a piece; of equal ones the leftmost (Sennrich et al. 2016).
class BytePairTokenizer extends SubwordTokenizer {
  constructor(table) {
    super(table);
    // Words can be merged one by one unless a piece reaches into the next.
    this.boundary = table.pieces.some((piece) => /[^\u2581]\u2581/.test(piece)) ? /$/ : /(?<=[^\u2581])(?=\u2581)/;
    // Tags are no merges: they are found first, of two at one position the longer one.
    const tags = (table.tags || []).map((id) => table.pieces[id].replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).sort((one, other) => other.length - one.length);
    this.tags = tags.length ? new RegExp(`(${tags.join("|")})`) : /(?!)/;
  }
  split(letters) {
    return letters.join("").split(this.tags).flatMap((part, index) => index % 2 ? [part] : part.split(this.boundary).flatMap((word) => this.merged([...word])));
  }
  merged(parts) {
    for (;;) {
      let best = -1, score = -Infinity;
      for (let index = 0; index + 1 < parts.length; index++) {
        const id = this.ids.get(parts[index] + parts[index + 1]);
        if (id !== undefined && this.scores[id] > score) [best, score] = [index, this.scores[id]];
      }
      if (best < 0) return parts;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
  }
}

// The most probable division (Kudo 2018); an unknown letter costs 10 more than the least probable piece.
class UnigramTokenizer extends SubwordTokenizer {
  constructor(table) {
    super(table);
    this.longest = table.mergeable.reduce((most, id) => Math.max(most, [...table.pieces[id]].length), 1);
    this.unknown = table.mergeable.reduce((least, id) => Math.min(least, table.scores[id]), Infinity) - 10;
  }
  split(letters) {
    const best = [{ score: 0, from: -1 }];
    for (let start = 0; start < letters.length; start++) {
      let piece = "";
      for (let end = start + 1; end <= Math.min(start + this.longest, letters.length); end++) {
        piece += letters[end - 1];
        const id = this.ids.get(piece);
        if (id === undefined && end > start + 1) continue;
        const score = best[start].score + (id === undefined ? this.unknown : this.scores[id]);
        if (!best[end] || score > best[end].score) best[end] = { score, from: start };
      }
    }
    const pieces = [];
    for (let end = letters.length; end > 0; end = best[end].from) pieces.unshift(letters.slice(best[end].from, end).join(""));
    return pieces;
  }
}

class ByteTokenizer {
  constructor({ pieces }) { this.pieces = pieces; }
  encode(text) { return [...new TextEncoder().encode(wellFormed(text))].map((byte) => byte + 4); }
  decode(ids) { return new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(ids.filter((id) => id > UNK).map((id) => id - 4))); }
}

const WHITE = "(?!\\ufeff)[\\s\\x1c-\\x1f\\x85]"; // U+FEFF is no space in Python.
const words = (word) => ({ pattern: new RegExp(` ?(?:${word}+|(?!${word}|${WHITE})[^])|${WHITE}`, "gu"), unknown: " <unk>" });
const UNITS = {
  word: words("[\\p{Alphabetic}\\p{M}\\p{N}\\p{Pc}\\p{Join_Control}]"),
  word_without_marks: words("[\\p{L}\\p{N}_]"), // Tokenizers of earlier versions.
  character: { pattern: /[^]/gu, unknown: "\ufffd" },
};

// Words with the space before them, or characters.
class UnitTokenizer {
  constructor({ kind, pieces, marks = true }) {
    Object.assign(this, { kind, pieces, ...UNITS[marks ? kind : "word_without_marks"] });
    this.ids = new Map(pieces.slice(4).map((piece, index) => [piece, index + 4]));
  }
  units(text) { return (text && wellFormed(this.kind === "word" ? " " + text : text).match(this.pattern)) || []; }
  encode(text) {
    return this.units(text).map((unit) => this.ids.has(unit) ? this.ids.get(unit) : UNK);
  }
  decode(ids) {
    const text = ids.filter((id) => ![PAD, BOS, EOS].includes(id)).map((id) => id === UNK ? this.unknown : this.pieces[id]).join("");
    return this.kind === "word" ? text.replace(/^ /, "") : text;
  }
}
