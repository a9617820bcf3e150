"""One file per figure or table: its runs at each scale, its claims, its drawing. No study imports another."""
