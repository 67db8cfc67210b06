"""Write a trained model as a SavedModel that takes encoded images, and in other forms."""
