// Command attention computes causal attention and its gradients, and compares each gradient with a
// difference of two losses.
package main

import (
	"fmt"
	"log"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// The shape: q, k and v are [1, heads, tokens, width], and so is the output.
const heads, tokens, width = 2, 100, 8

func main() {
	m, err := mechanism.New("fastmax", mechanism.Options{})
	if err != nil {
		log.Fatal(err)
	}
	c := &attention.Call{Q: randomHeads(1), K: randomHeads(2), V: randomHeads(3), Causal: true}

	// Forward keeps what Backward needs; nil instead of &keep keeps nothing.
	out := newZeros()
	var keep attention.Saved
	if err := m.Forward(out, c, &keep); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("loss %.4f\n", sumProducts(out))

	// The loss is Σ o²/2, so its gradient in the output is the output.
	g := attention.Grads{DQ: newZeros(), DK: newZeros(), DV: newZeros()}
	if err := m.Backward(&g, out, out, c, &keep); err != nil {
		log.Fatal(err)
	}
	for _, of := range []struct {
		name string
		x, d tensor.Heads
	}{{"dq", c.Q, g.DQ}, {"dk", c.K, g.DK}, {"dv", c.V, g.DV}} {
		const at, h = 30 * width, 1.0 / 64 // channel 0 of token 30 of the first head
		x := of.x.Data[at]
		of.x.Data[at] = x + h
		up := lossOf(m, c)
		of.x.Data[at] = x - h
		down := lossOf(m, c)
		of.x.Data[at] = x
		fmt.Printf("%s %+.6f, by differences %+.6f\n", of.name, of.d.Data[at], (up-down)/(2*h))
	}

	p := m.Plan(c.Shape())
	fmt.Printf("computed in the %v form; %d features of a row\n", p.Form, p.F)
}

// lossOf is the loss of a call.
func lossOf(m attention.Mechanism, c *attention.Call) float64 {
	out := newZeros()
	if err := m.Forward(out, c, nil); err != nil {
		log.Fatal(err)
	}
	return sumProducts(out)
}

func sumProducts(out tensor.Heads) (sum float64) {
	for _, o := range out.Data {
		sum += float64(o) * float64(o) / 2
	}
	return sum
}

func newZeros() tensor.Heads { return tensor.NewHeads(1, heads, tokens, width) }

// randomHeads returns N(0,1) numbers.
func randomHeads(seed uint64) tensor.Heads {
	x := newZeros()
	for i := range x.Data {
		x.Data[i] = float32(rng.New(seed).Normal(uint64(i)))
	}
	return x
}
