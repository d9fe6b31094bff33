"use strict";
// The data of the page, and its packed arrays. No library, no network.

const page = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const described = new Map(page.readings.flatMap(({ attentions }) => attentions.flatMap(({ weights, rollout }) => [...weights, ...rollout].map((each) => [each.block, each]))));
const unpacked = new Map(); // number of a block -> { length, at(index) }; null while it is being unpacked
const unpacking = new Map(); // number of a block -> promise

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) bytes[index] = text.charCodeAt(index);
  return bytes;
}

async function inflate(number) {
  const bytes = bytesOf(byId("block-" + number).textContent);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The value of every step; the inverse of quantized() in page.py.
function valuesOfSteps(packed) {
  return Float32Array.from({ length: 256 }, (_, step) => packed.signed
    ? Math.sign(step - 128) * packed.largest * ((step - 128) / 127) ** 2
    : packed.largest * (step / 255) ** 2);
}

// The bytes of a description; some are stored as differences to another block.
const stored = new Map(); // number of a block -> promise
function stepsOf({ block, before }) {
  if (!stored.has(block)) {
    const whole = before === undefined ? inflate(block) : Promise.all([inflate(block), stepsOf(described.get(before))]).then(([steps, earlier]) => steps.map((step, index) => step + earlier[index]));
    stored.set(block, whole);
  }
  return stored.get(block);
}

// The array of a description as { length, at(index) }, or null: then the page is drawn again when it has been unpacked. An array
// that was computed in the page has its values.
function arrayOf(packed) {
  if (packed.values) return { length: packed.values.length, at: (index) => packed.values[index] };
  const found = unpacked.get(packed.block);
  if (found !== undefined) return found;
  unpacked.set(packed.block, null);
  unpacking.set(packed.block, stepsOf(packed).then((steps) => {
    const table = valuesOfSteps(packed);
    unpacked.set(packed.block, { length: steps.length, at: (index) => table[steps[index]] });
    unpacking.delete(packed.block);
    render();
  }));
  return null;
}

