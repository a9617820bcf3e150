"""What reads one paper: its studies, iGSM's analysis and the pages of results. Only the command line imports it."""
