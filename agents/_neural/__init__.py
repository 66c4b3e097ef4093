"""Networks trained by an optimizer on a memory, without a belief or with one over their last layer.

experience      what a step teaches, as rows of a memory
last_layer      the output layer of a network, apart from its features
loop            the agent: gradient steps on minibatches, and a `Head`, which has loss and belief
laplace, neural_linear, vbll, ensemble      the heads, and the agents with them
"""
