"""Messages of magic 0 and 1, and the conversion from them and to them."""
