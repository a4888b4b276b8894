"""Triton kernels for CUDA devices; their modules are imported where Triton is, by those who use them.

Noise: `noise`. Votes in bfloat16: `pooling` for LeNet, `residual_stage` and `residual_network` for the CIFAR ResNets,
`bottleneck` for ResNet-50. The CIFAR ResNets' training in bfloat16: `convolution` and `batchnorm` are the kernels,
`training_layers` has the layers of a stage with their gradients, `training_network` the network.
"""
