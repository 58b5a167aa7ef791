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
func newCompound[T tensor.Float]() (attention.Mechanism[T], error) {
	return factorised.New(attention.Spec[T]{
		Name:     "compound",
		Setting:  "compound",
		Norm:     attention.Unit,
		Scale:    1,
		Coef:     []float64{1, 1, 0.25},
		Positive: true,
	})
}

// newSoftplus returns a mechanism that weighs a key by φ(q)·φ(k), the score of mapped rows.
func newSoftplus[T tensor.Float]() (attention.Mechanism[T], error) {
	return factorised.New(attention.Spec[T]{
		Name:     "softplus",
		Setting:  "softplus",
		Scale:    1,
		Map:      softplus[T]{},
		Coef:     []float64{0, 1},
		Positive: true,
	})
}

// softplus is φ(x) = ln(1 + eˣ) of each number.
type softplus[T tensor.Float] struct{}

func (softplus[T]) Dim(d int) int { return d }

func (softplus[T]) Elementwise() {}

func (softplus[T]) Map(dst, x []T) {
	for i, y := range x[:len(dst)] {
		dst[i] = T(math.Max(float64(y), 0) + math.Log1p(math.Exp(-math.Abs(float64(y)))))
	}
}

func (softplus[T]) Grad(dx, dy, x []T) {
	for i, y := range x[:len(dx)] {
		dx[i] = T(float64(dy[i]) / (1 + math.Exp(-float64(y))))
	}
}

// The sizes that are shown.
const (
	heads, keyHeads = 4, 2
	tokens, width   = 300, 16
)

func main() {
	for _, build := range []func() (attention.Mechanism[float64], error){newCompound[float64], newSoftplus[float64]} {
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
	"compound": model.NewFactory(func(mechanism.Options) (attention.Mechanism[float32], error) { return newCompound[float32]() }),
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
func printMechanism(m attention.Mechanism[float64]) error {
	c := &attention.Call[float64]{Q: randomHeads(1, heads), K: randomHeads(2, keyHeads), V: randomHeads(3, keyHeads), Causal: true}
	fmt.Printf("%s: %d features of a row\n", m.Traits().Name, m.Plan(c.Shape()).F)

	direct, err := computeForward(m, c, attention.Direct)
	if err != nil {
		return err
	}
	linear, err := computeForward(m, c, attention.Linear)
	if err != nil {
		return err
	}
	fmt.Println("  both forms agree:", maxDifference(direct, linear) < 1e-12)

	stepped, err := decodeInterrupted(m, c)
	if err != nil {
		return err
	}
	fmt.Println("  so does a state that is saved half-way:", maxDifference(direct, stepped) < 1e-12)

	slope, difference, err := directionalDerivative(m, c)
	if err != nil {
		return err
	}
	fmt.Println("  its gradient is the derivative:", math.Abs(slope-difference) < 1e-7*(1+math.Abs(slope)))
	return nil
}

// newZeros returns h heads, [1, h, tokens, width].
func newZeros(h int) tensor.Heads[float64] { return tensor.NewHeads[float64](1, h, tokens, width) }

// randomHeads returns as many of N(0,1) numbers.
func randomHeads(seed uint64, h int) tensor.Heads[float64] {
	x := newZeros(h)
	for i := range x.Data {
		x.Data[i] = rng.New(seed).Normal(uint64(i))
	}
	return x
}

func computeForward(m attention.Mechanism[float64], c *attention.Call[float64], form attention.Form) ([]float64, error) {
	call := *c
	call.Form = form
	out := newZeros(heads)
	err := m.Forward(out, &call, nil)
	return out.Data, err
}

// decodeInterrupted steps through the tokens with a state that is saved half-way, and
// goes on with what was saved.
func decodeInterrupted(m attention.Mechanism[float64], c *attention.Call[float64]) ([]float64, error) {
	out := newZeros(heads)
	state, err := m.NewState(c.Shape())
	if err != nil {
		return nil, err
	}
	const half = tokens / 2
	part := func(i0, i1 int) *attention.Call[float64] {
		return &attention.Call[float64]{Q: c.Q.Tokens(i0, i1), K: c.K.Tokens(i0, i1), V: c.V.Tokens(i0, i1)}
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
func directionalDerivative(m attention.Mechanism[float64], c *attention.Call[float64]) (slope, difference float64, err error) {
	out, do := newZeros(heads), randomHeads(4, heads)
	var keep attention.Saved[float64]
	if err := m.Forward(out, c, &keep); err != nil {
		return 0, 0, err
	}
	g := attention.Grads[float64]{DQ: newZeros(heads), DK: newZeros(keyHeads), DV: newZeros(keyHeads)}
	if err := m.Backward(&g, do, out, c, &keep); err != nil {
		return 0, 0, err
	}
	way := []tensor.Heads[float64]{randomHeads(5, heads), randomHeads(6, keyHeads), randomHeads(7, keyHeads)}
	for i, d := range []tensor.Heads[float64]{g.DQ, g.DK, g.DV} {
		slope += dotProduct(d.Data, way[i].Data)
	}
	const h = 1e-5
	for _, step := range []float64{h, -h} {
		moved := *c
		for i, x := range []*tensor.Heads[float64]{&moved.Q, &moved.K, &moved.V} {
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
		difference += dotProduct(o, do.Data) / (2 * step)
	}
	return slope, difference, nil
}

func dotProduct(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// maxDifference is the largest difference.
func maxDifference(a, b []float64) (most float64) {
	for i := range a {
		most = max(most, math.Abs(a[i]-b[i]))
	}
	return most
}
