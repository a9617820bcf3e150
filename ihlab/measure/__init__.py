"""What a model does on rows: loss, accuracy, and where its heads attend. One definition of each."""
