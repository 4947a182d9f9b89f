const hovered = cb_data.index.indices[0]
const row = hovered == null ? null : source.get_column("row")[hovered]
for (const other of source.document.all_models) {
  if (other.type !== "ColumnDataSource" || other === source) continue
  const rows = other.get_column("row")
  if (rows == null) continue
  const index = row == null ? -1 : rows.indexOf(row)
  const marked = index < 0 ? [] : [index]
  if (String(other.inspected.indices) === String(marked)) continue
  other.inspected.indices = marked
  other.inspect.emit([null, { geometry: { type: "none" } }])  // draws the mark, and shows no second tooltip
}
