"""What is right and wrong in a solution of an iGSM problem."""
