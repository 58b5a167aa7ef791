package demo

import (
	"fmt"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// The attention of the demo: causal Fastmax of order 2 with the scale that trains best,
// in heads of the training's width.
const (
	demoMechanism = "fastmax"
	demoWidth     = 16
	demoHeads     = 2 // one for each of two threads
)

var demoOptions = mechanism.Options{Set: map[string]string{"scale": "1/sqrt(D)"}}

// agreement is how near one form comes to the textbook.
type agreement struct {
	form   string
	digits float64
}

// agreements computes one causal attention over n tokens in every form, and
// compares each with the textbook in float64.
func agreements(n int) ([]agreement, error) {
	m, err := mechanism.New(demoMechanism, demoOptions)
	if err != nil {
		return nil, err
	}
	c := demoCall(n)
	want := textbook(c)
	var list []agreement
	add := func(form string, out []float32) {
		list = append(list, agreement{form, digits(out, want)})
	}
	out := tensor.NewHeads(1, demoHeads, n, demoWidth)
	forward := func(name string, form attention.Form, chunk int) error {
		c.Form, c.Chunk = form, chunk
		if err := m.Forward(out, c, nil); err != nil {
			return err
		}
		add(name, out.Data)
		return nil
	}
	if err := forward("direct: every weight", attention.Direct, 0); err != nil {
		return nil, err
	}
	for _, chunk := range []int{32, 128, 512} {
		if err := forward(fmt.Sprintf("linear: sums of features, chunks of %d tokens", chunk), attention.Linear, chunk); err != nil {
			return nil, err
		}
	}
	c.Chunk = 0
	steps, err := stepwise(m, c, n)
	if err != nil {
		return nil, err
	}
	add("step: token by token through a state", steps)
	restored, err := stepwise(m, c, n/2)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("step: state saved and restored after %d tokens", n/2)
	if slices.Equal(steps, restored) {
		name += " (the same bits)"
	}
	add(name, restored)
	return list, nil
}

// demoCall is a causal call over n random tokens.
func demoCall(n int) *attention.Call {
	key := rng.New(1)
	return &attention.Call{
		Q: demoTokens(key.Fold(1), n), K: demoTokens(key.Fold(2), n), V: demoTokens(key.Fold(3), n),
		Causal: true,
	}
}

// demoTokens are numbers between -1 and 1.
func demoTokens(key rng.Key, n int) tensor.Heads {
	x := tensor.NewHeads(1, demoHeads, n, demoWidth)
	for i := range x.Data {
		x.Data[i] = float32(2*key.Float64(uint64(i)) - 1)
	}
	return x
}

// textbook returns causal attention of c in float64, weight by weight: rows have mean 0
// and variance 1, and a score x = q·k/√D weighs 1 + x + x²/2.
func textbook(c *attention.Call) []float64 {
	out := make([]float64, c.V.H*c.V.N*c.V.D)
	for h := range c.Q.H {
		q, k := standardRows(c.Q, h), standardRows(c.K, h)
		for i := range q {
			row, sum := out[(h*c.V.N+i)*c.V.D:][:c.V.D], 0.0
			for j := range k[:i+1] {
				x := 0.0
				for d := range q[i] {
					x += q[i][d] * k[j][d]
				}
				x /= math.Sqrt(float64(len(q[i])))
				weight := 1 + x + x*x/2
				sum += weight
				for d, v := range c.V.Head(0, h).Row(j) {
					row[d] += weight * float64(v)
				}
			}
			for d := range row {
				row[d] /= sum
			}
		}
	}
	return out
}

// standardRows returns the rows of a head with mean 0 and variance 1.
func standardRows(x tensor.Heads, head int) [][]float64 {
	rows := make([][]float64, x.N)
	for i := range rows {
		row := make([]float64, x.D)
		var mean, square float64
		for d, v := range x.Head(0, head).Row(i) {
			row[d] = float64(v)
			mean += row[d] / float64(x.D)
		}
		for d := range row {
			row[d] -= mean
			square += row[d] * row[d] / float64(x.D)
		}
		for d := range row {
			row[d] /= math.Sqrt(square)
		}
		rows[i] = row
	}
	return rows
}

// stepwise computes c with a state, which is written and read again after half
// tokens.
func stepwise(m attention.Mechanism, c *attention.Call, half int) ([]float32, error) {
	s := c.Shape()
	out := tensor.NewHeads(s.B, s.H, s.N, s.Dv)
	state, err := m.NewState(s)
	if err != nil {
		return nil, err
	}
	for i := range s.N {
		if i == half {
			snapshot, err := state.AppendBinary(nil)
			if err != nil {
				return nil, err
			}
			if state, err = m.RestoreState(snapshot); err != nil {
				return nil, err
			}
		}
		token := &attention.Call{Q: c.Q.Tokens(i, i+1), K: c.K.Tokens(i, i+1), V: c.V.Tokens(i, i+1)}
		if err := state.Step(out.Tokens(i, i+1), token); err != nil {
			return nil, err
		}
	}
	return out.Data, nil
}

// digits is how many decimal digits of the largest value the worst one has
// right.
func digits(got []float32, want []float64) float64 {
	var worst, largest float64
	for i, w := range want {
		worst = max(worst, math.Abs(float64(got[i])-w))
		largest = max(largest, math.Abs(w))
	}
	return -math.Log10(worst / largest)
}
