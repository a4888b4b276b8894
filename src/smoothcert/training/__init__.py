"""Training, from recipes to trained weights.

A run passes through the modules in this order:

recipes -> runs -> prepare (images, teacher, soft labels) -> setup -> fit -> loop -> stepper -> methods -> run_folder
"""
