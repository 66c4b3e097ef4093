"""Networks trained by an optimizer on a memory, without a belief or with one over their last layer.

experience      rows of a memory
last_layer      the output layer of a network
loop            the agent: gradient steps on minibatches, and a `Head` with loss and belief
laplace, neural_linear, vbll, ensemble      the heads and their agents
"""
