//go:build float64

package model

import (
	"math"
	"testing"
)

// A loss of the logits has the gradient that Forward and Backward have of the same loss.
func TestOwnLossHasTheGradientOfTheModels(t *testing.T) {
	for _, name := range []string{"encoder softmax", "post-norm", "mamba-2"} {
		c := cases()[name]
		m, b := made(t, c), batch(c, 1, 2, 5, false)
		loss, err := m.Forward(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Backward(1); err != nil {
			t.Fatal(err)
		}
		var want []float64
		for _, p := range m.Params().All() {
			want = append(want, p.Grad...)
		}
		m.Params().ZeroGrad()

		outputs := c.outputSize()
		logits := make([]float64, c.Rows(b.B, b.N)*outputs)
		if err := m.ForwardLogits(t.Context(), b, logits); err != nil {
			t.Fatal(err)
		}
		if err := m.Backward(1); err == nil {
			t.Errorf("%s: Backward is accepted without a loss", name)
		}
		counted, own := 0, 0.
		for _, y := range b.Targets {
			if y >= 0 {
				counted++
			}
		}
		for i, y := range b.Targets {
			row := logits[i*outputs:][:outputs]
			sum := 0.
			for _, x := range row {
				sum += math.Exp(x)
			}
			if y >= 0 {
				own += math.Log(sum) - row[y]
			}
			for j, x := range row {
				if row[j] = 0; y >= 0 {
					row[j] = math.Exp(x) / sum / float64(counted)
				}
			}
			if y >= 0 {
				row[y] -= 1 / float64(counted)
			}
		}
		if own /= float64(counted); math.Abs(own-loss) > 1e-12*(1+loss) {
			t.Errorf("%s: the loss of the logits is %v, of the model %v", name, own, loss)
		}
		if err := m.BackwardLogits(logits, 1); err != nil {
			t.Fatal(err)
		}
		i := 0
		for _, p := range m.Params().All() {
			for _, x := range p.Grad {
				if math.Abs(x-want[i]) > 1e-11*(1+math.Abs(want[i])) {
					t.Fatalf("%s: %s has the gradient %v, want %v", name, p.Name, x, want[i])
				}
				i++
			}
		}
		if err := m.BackwardLogits(logits, 1); err == nil {
			t.Errorf("%s: a second BackwardLogits is accepted", name)
		}
	}
}
