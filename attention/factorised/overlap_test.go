package factorised

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/tensor"
)

// overlapCall is a causal call, its outputs and its gradients, each in memory of its own.
type overlapCall struct {
	c         *attention.Call
	out, dout tensor.Heads
	g         attention.Grads
	keep      attention.Saved
}

var overlapSpecs = map[string]attention.Spec{
	"softmax": {Name: "softmax", Setting: "s", Exp: true, Positive: true},
	"sums":    {Name: "sums", Setting: "s", Coef: []float64{1, 1, 0.5}},
	"window":  {Name: "window", Setting: "s", Coef: []float64{1, 1, 0.5}, Window: &attention.Window{Width: 3}},
}
