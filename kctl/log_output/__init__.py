"""Log lines of the servers: as text or JSON, with repeated lines folded.

Reading order: events (a record's event and fields), text_lines and json_lines (formatters), folding (which lines are
left out), handler (writes the lines).
"""
