// Colors of values.

// Lightness is monotonic in each palette, so values can be told apart without hue.
const PALETTES = {
  blue: { light: [[255, 255, 255], [189, 215, 238], [74, 144, 196], [8, 48, 107]], dark: [[18, 23, 29], [22, 66, 105], [74, 144, 196], [225, 240, 252]] },
  cividis: { light: [[0, 34, 78], [87, 93, 109], [165, 156, 116], [254, 232, 56]], dark: [[0, 34, 78], [87, 93, 109], [165, 156, 116], [254, 232, 56]] },
  gray: { light: [[255, 255, 255], [0, 0, 0]], dark: [[18, 23, 29], [255, 255, 255]] },
};
const SIGNED = { light: [[150, 60, 0], [240, 150, 70], [255, 255, 255], [90, 155, 205], [8, 48, 107]], dark: [[255, 190, 120], [165, 85, 20], [18, 23, 29], [35, 90, 140], [150, 205, 250]] };
const isDark = () => document.documentElement.dataset.theme === "dark";
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

function between(stops, share) {
  const position = clamp(share, 0, 1) * (stops.length - 1), below = Math.min(Math.floor(position), stops.length - 2);
  return stops[below].map((value, channel) => Math.round(value + (stops[below + 1][channel] - value) * (position - below)));
}

// 256 colors, packed as ImageData has them; of signed values the middle is zero.
function colorTable(isSigned) {
  const stops = isSigned ? SIGNED[isDark() ? "dark" : "light"] : PALETTES[state.palette][isDark() ? "dark" : "light"];
  return Uint32Array.from({ length: 256 }, (_, step) => {
    const [red, green, blue] = between(stops, step / 255);
    return (255 << 24) | (blue << 16) | (green << 8) | red;
  });
}

const stepOf = (value, matrix) => {
  let share = matrix.largest ? value / matrix.largest : 0;
  // The square root makes faint values visible; most values of a long text are faint.
  if (state.shades === "root") share = Math.sign(share) * Math.sqrt(Math.abs(share));
  return matrix.isSigned ? Math.round(127.5 + 127.5 * share) : Math.round(255 * share);
};

function rgbOf(value, matrix) {
  const color = colorTable(matrix.isSigned)[stepOf(value, matrix)];
  return [color & 255, (color >> 8) & 255, (color >> 16) & 255];
}

const cssColor = (value, matrix) => `rgb(${rgbOf(value, matrix).join()})`;

// Colors of heads, which can be told apart on both grounds.
const HEAD_COLORS = ["#2f7fc1", "#d9691e", "#2f9e6b", "#b0569f", "#a58a00", "#7a68c8", "#c9485b", "#4aa3b5"];
const headColor = (head) => HEAD_COLORS[head % HEAD_COLORS.length];

// An image of a matrix with a pixel per cell; with more than `most` cells a side, the value furthest from zero in each block.
function bitmapOf(matrix, most = Infinity) {
  const numRows = matrix.rows.length, numColumns = matrix.columns.length;
  const width = Math.min(numColumns, most), height = Math.min(numRows, most);
  const table = colorTable(matrix.isSigned), canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const image = new ImageData(width, height), pixels = new Uint32Array(image.data.buffer);
  const furthest = new Float32Array(width * height);
  for (let row = 0; row < numRows; row++) {
    const line = Math.floor(row * height / numRows) * width, start = row * numColumns;
    for (let column = 0; column < numColumns; column++) {
      const index = line + Math.floor(column * width / numColumns), value = matrix.values[start + column];
      if (Math.abs(value) > Math.abs(furthest[index])) furthest[index] = value;
    }
  }
  for (let index = 0; index < pixels.length; index++) pixels[index] = table[stepOf(furthest[index], matrix)];
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

