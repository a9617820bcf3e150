"""One file a figure or table: its runs at each scale, the claims it must bear out, its drawing."""
