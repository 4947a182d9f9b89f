"""The sidebar: data, kernel, method, settings and presets."""
