// Two pens with the same drawing operations: for the screen and for SVG.

const FONT = "system-ui, 'DejaVu Sans', sans-serif";

// Whether the first letter is from a right-to-left script.
const isRightToLeft = (text) => /^\P{L}*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u.test(text);

class CanvasPen {
  constructor(context) { this.context = context; }
  rect(x, y, width, height, color) {
    this.context.fillStyle = color;
    this.context.fillRect(x, y, width, height);
  }
  frame(x, y, width, height, color, thickness = 1) {
    this.context.strokeStyle = color;
    this.context.lineWidth = thickness;
    this.context.strokeRect(x, y, width, height);
  }
  text(text, x, y, { color, size = 12, align = "left", bold = false, rotated = false }) {
    const context = this.context;
    context.fillStyle = color;
    context.font = `${bold ? "600 " : ""}${size}px ${FONT}`;
    context.textAlign = align;
    context.textBaseline = "middle";
    context.direction = isRightToLeft(text) ? "rtl" : "ltr";
    if (!rotated) return context.fillText(text, x, y);
    context.save();
    context.translate(x, y);
    context.rotate(-Math.PI / 2);
    context.fillText(text, 0, 0);
    context.restore();
  }
  curve(x1, y1, x2, y2, color, opacity, thickness) {
    const context = this.context, bend = (x2 - x1) / 2;
    context.globalAlpha = opacity;
    context.strokeStyle = color;
    context.lineWidth = thickness;
    context.beginPath();
    context.moveTo(x1, y1);
    context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
    context.stroke();
    context.globalAlpha = 1;
  }
  line(points, color, thickness) {
    const context = this.context;
    context.strokeStyle = color;
    context.lineWidth = thickness;
    context.beginPath();
    points.forEach(([x, y], index) => index ? context.lineTo(x, y) : context.moveTo(x, y));
    context.stroke();
  }
  bitmap(image, x, y, width, height) {
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(image, x, y, width, height);
  }
  // Calls `draw` with its origin at (x, y), clipped to the rectangle.
  inside(x, y, width, height, draw) {
    this.context.save();
    this.context.translate(x, y);
    this.context.beginPath();
    this.context.rect(0, 0, width, height);
    this.context.clip();
    draw(this);
    this.context.restore();
  }
}

const marked = (text) => text.replace(/[&<>"]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter]);

// The same drawing operations as SVG elements.
class SvgPen {
  constructor() { this.parts = []; }
  rect(x, y, width, height, color) { this.parts.push(`<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${color}"/>`); }
  frame(x, y, width, height, color, thickness = 1) {
    this.parts.push(`<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="none" stroke="${color}" stroke-width="${thickness}"/>`);
  }
  text(text, x, y, { color, size = 12, align = "left", bold = false, rotated = false }) {
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    const rotation = rotated ? ` transform="rotate(-90 ${x} ${y})"` : "";
    this.parts.push(`<text x="${x}" y="${y}" fill="${color}" font-size="${size}"${bold ? ' font-weight="600"' : ""} text-anchor="${anchor}" dominant-baseline="central" style="unicode-bidi:plaintext"${rotation}>${marked(text)}</text>`);
  }
  curve(x1, y1, x2, y2, color, opacity, thickness) {
    const bend = (x2 - x1) / 2;
    this.parts.push(`<path d="M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}" fill="none" stroke="${color}" stroke-opacity="${opacity.toFixed(3)}" stroke-width="${thickness}"/>`);
  }
  line(points, color, thickness) {
    this.parts.push(`<polyline points="${points.map((point) => point.join()).join(" ")}" fill="none" stroke="${color}" stroke-width="${thickness}"/>`);
  }
  bitmap(image, x, y, width, height) {
    this.parts.push(`<image x="${x}" y="${y}" width="${width}" height="${height}" preserveAspectRatio="none" style="image-rendering:pixelated" href="${image.toDataURL("image/png")}"/>`);
  }
  inside(x, y, width, height, draw) {
    this.parts.push(`<svg x="${x}" y="${y}" width="${width}" height="${height}">`);
    draw(this);
    this.parts.push("</svg>");
  }
  svg(width, height) {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="${marked(FONT)}">${this.parts.join("\n")}</svg>\n`;
  }
}

