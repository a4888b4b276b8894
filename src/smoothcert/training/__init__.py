"""From a recipe to trained weights.

recipes -> runs (prepare: images, teacher, soft labels) -> setup -> fit -> loop -> stepper -> methods -> run_folder
"""
