"""Everything about EAGLE-3 drafters that needs no screen. Front ends use `drafter.session.Session`."""
