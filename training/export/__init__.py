"""Write a trained model as a SavedModel that takes encoded images."""
