// The samples that a run has drawn at a checkpoint: one picture with several images on white.

const GAP = 2; // pixels of white around each image

/**
 * Draws the images of the picture without the white between them, so that the page's background shows, light or dark.
 *
 * There are n images of the given shape. A picture with another layout is drawn as it is.
 */
export function drawSheet(canvas, picture, n, shape) {
  const [, height, width] = shape ?? [];
  const columns = Math.ceil(Math.sqrt(n)), rows = Math.ceil(n / columns);
  const zoom = picture.naturalWidth / (columns * (width + GAP) + GAP);
  const known = Number.isInteger(zoom) && picture.naturalHeight === zoom * (rows * (height + GAP) + GAP);
  const edge = known ? GAP * zoom : 0; // the white at the outer edge is cut off
  canvas.width = picture.naturalWidth - 2 * edge;
  canvas.height = picture.naturalHeight - 2 * edge;
  const context = canvas.getContext("2d");
  if (!known) {
    context.drawImage(picture, 0, 0);
    return;
  }
  for (let k = 0; k < n; k++) {
    const x = (k % columns) * (width + GAP) * zoom, y = Math.floor(k / columns) * (height + GAP) * zoom;
    context.drawImage(picture, x + edge, y + edge, width * zoom, height * zoom, x, y, width * zoom, height * zoom);
  }
}
