"""A Flower app whose server keeps a model for every block of the day."""
