"""The format language of `kctl consume -f` and `kctl produce -f`: see docs/format-language.md."""
