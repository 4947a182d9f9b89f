const [left, right, bottom, top] = figure.tags
const [w, h] = [figure.inner_width, figure.inner_height]
if (!(right > left && top > bottom && w > 0 && h > 0)) return
const unit = Math.max((right - left) / w, (top - bottom) / h)
const [x, y, dx, dy] = [(left + right) / 2, (bottom + top) / 2, (unit * w) / 2, (unit * h) / 2]
figure.x_range.setv({ start: x - dx, end: x + dx })
figure.y_range.setv({ start: y - dy, end: y + dy })
