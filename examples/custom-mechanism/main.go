// Command custom-mechanism defines two attention mechanisms, a kernel and a feature map, and shows
// what they get from the library: both forms, gradients, saved states and a plan. Then it puts one
// of them into a model, saves the model and reads it back. docs/extending.md follows this file.
package main

import (
	"fmt"
	"log"
	"math"
	"os"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// newCompound weighs a key by (1 + s/2)² = 1 + s + s²/4, s = cos(q, k), which is eˢ
// with interest paid twice. As |s| ≤ 1, weights are at least 1/4.
func newCompound() (attention.Mechanism, error) {
	return factorised.New(attention.Spec{
		Name:     "compound",
		Setting:  "compound",
		Norm:     attention.Unit,
		Scale:    1,
		Coef:     []float64{1, 1, 0.25},
		Positive: true,
	})
}

// newSoftplus returns a mechanism that weighs a key by φ(q)·φ(k), the score of mapped rows.
func newSoftplus() (attention.Mechanism, error) {
	return factorised.New(attention.Spec{
		Name:     "softplus",
		Setting:  "softplus",
		Scale:    1,
		Map:      softplus{},
		Coef:     []float64{0, 1},
		Positive: true,
	})
}

// softplus is φ(x) = ln(1 + eˣ) of each number.
type softplus struct{}

func (softplus) Dim(d int) int { return d }

func (softplus) Elementwise() {}

func (softplus) Map(dst, x []float32) {
	for i, y := range x[:len(dst)] {
		dst[i] = float32(math.Max(float64(y), 0) + math.Log1p(math.Exp(-math.Abs(float64(y)))))
	}
}

func (softplus) Grad(dx, dy, x []float32) {
	for i, y := range x[:len(dx)] {
		dx[i] = float32(float64(dy[i]) / (1 + math.Exp(-float64(y))))
	}
}

// The sizes that are shown.
const (
	heads, keyHeads = 4, 2
	tokens, width   = 300, 16
)

func main() {
	for _, build := range []func() (attention.Mechanism, error){newCompound, newSoftplus} {
		m, err := build()
		if err != nil {
			log.Fatal(err)
		}
		if err := printMechanism(m); err != nil {
			log.Fatal(err)
		}
	}
	if err := saveModel(); err != nil {
		log.Fatal(err)
	}
}

// factories names a mechanism for models.
var factories = map[string]model.Factory{
	"compound": model.NewFactory(func(mechanism.Options) (attention.Mechanism, error) { return newCompound() }),
}

// saveModel saves a model with the mechanism and reads it back.
func saveModel() error {
	m, err := model.New(model.Config{
		Kind: model.Decoder, Vocab: 256, Layers: 2, Heads: heads, Width: heads * width, Context: tokens,
		Positions: model.Rotary, Mechanism: "compound", Factories: factories,
	}, rng.New(1))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "custom-mechanism")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := m.Save(dir); err != nil {
		return err
	}
	read, err := model.LoadWith(dir, factories)
	if err != nil {
		return err
	}
	fmt.Println("a model with compound is saved and read back:", read.WeightSum() == m.WeightSum())
	return nil
}

// printMechanism computes one call in every way, and says how far these agree.
func printMechanism(m attention.Mechanism) error {
	c := &attention.Call{Q: randomHeads(1, heads), K: randomHeads(2, keyHeads), V: randomHeads(3, keyHeads), Causal: true}
	fmt.Printf("%s: %d features of a row\n", m.Traits().Name, m.Plan(c.Shape()).F)

	direct, err := computeForward(m, c, attention.Direct)
	if err != nil {
		return err
	}
	linear, err := computeForward(m, c, attention.Linear)
	if err != nil {
		return err
	}
	fmt.Println("  both forms agree:", maxDifference(direct, linear) < 1e-5)

	stepped, err := decodeInterrupted(m, c)
	if err != nil {
		return err
	}
	fmt.Println("  so does a state that is saved half-way:", maxDifference(direct, stepped) < 1e-5)

	slope, difference, err := directionalDerivative(m, c)
	if err != nil {
		return err
	}
	fmt.Println("  its gradient is the derivative:", math.Abs(slope-difference) < 1e-3*(1+math.Abs(slope)))
	return nil
}

// newZeros returns h heads, [1, h, tokens, width].
func newZeros(h int) tensor.Heads { return tensor.NewHeads(1, h, tokens, width) }

// randomHeads returns as many of N(0,1) numbers.
func randomHeads(seed uint64, h int) tensor.Heads {
	x := newZeros(h)
	for i := range x.Data {
		x.Data[i] = float32(rng.New(seed).Normal(uint64(i)))
	}
	return x
}

func computeForward(m attention.Mechanism, c *attention.Call, form attention.Form) ([]float32, error) {
	call := *c
	call.Form = form
	out := newZeros(heads)
	err := m.Forward(out, &call, nil)
	return out.Data, err
}

// decodeInterrupted steps through the tokens with a state that is saved half-way, and
// goes on with what was saved.
func decodeInterrupted(m attention.Mechanism, c *attention.Call) ([]float32, error) {
	out := newZeros(heads)
	state, err := m.NewState(c.Shape())
	if err != nil {
		return nil, err
	}
	const half = tokens / 2
	part := func(i0, i1 int) *attention.Call {
		return &attention.Call{Q: c.Q.Tokens(i0, i1), K: c.K.Tokens(i0, i1), V: c.V.Tokens(i0, i1)}
	}
	if err := state.Step(out.Tokens(0, half), part(0, half)); err != nil {
		return nil, err
	}
	saved, err := state.AppendBinary(nil)
	if err != nil {
		return nil, err
	}
	if state, err = m.RestoreState(saved); err != nil {
		return nil, err
	}
	return out.Data, state.Step(out.Tokens(half, tokens), part(half, tokens))
}

// directionalDerivative returns the derivative of Σ o·do as q, k and v move in a random
// direction: by the gradient, and by a central difference.
func directionalDerivative(m attention.Mechanism, c *attention.Call) (slope, difference float64, err error) {
	out, do := newZeros(heads), randomHeads(4, heads)
	var keep attention.Saved
	if err := m.Forward(out, c, &keep); err != nil {
		return 0, 0, err
	}
	g := attention.Grads{DQ: newZeros(heads), DK: newZeros(keyHeads), DV: newZeros(keyHeads)}
	if err := m.Backward(&g, do, out, c, &keep); err != nil {
		return 0, 0, err
	}
	way := []tensor.Heads{randomHeads(5, heads), randomHeads(6, keyHeads), randomHeads(7, keyHeads)}
	for i, d := range []tensor.Heads{g.DQ, g.DK, g.DV} {
		slope += dotProduct(d.Data, way[i].Data)
	}
	const h = 1.0 / 256
	for _, step := range []float32{h, -h} {
		moved := *c
		for i, x := range []*tensor.Heads{&moved.Q, &moved.K, &moved.V} {
			from := *x
			*x = newZeros(x.H)
			for j := range x.Data {
				x.Data[j] = from.Data[j] + step*way[i].Data[j]
			}
		}
		o, err := computeForward(m, &moved, attention.Auto)
		if err != nil {
			return 0, 0, err
		}
		difference += dotProduct(o, do.Data) / float64(2*step)
	}
	return slope, difference, nil
}

func dotProduct(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// maxDifference is the largest difference.
func maxDifference(a, b []float32) (most float64) {
	for i := range a {
		most = max(most, math.Abs(float64(a[i]-b[i])))
	}
	return most
}
