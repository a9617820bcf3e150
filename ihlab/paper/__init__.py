"""The reproduction of one paper: studies, iGSM's analysis and pages of results. Only the command line imports it."""
