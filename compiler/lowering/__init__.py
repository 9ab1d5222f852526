"""From the model's shape to kernel calls: operators, graph, gradient, memory of temporaries."""
