package reproduce

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// drawnCalls returns calls of layers with 12 heads of 32 numbers.
func drawnCalls(layers []int, n int) map[int]*attention.Call {
	calls := map[int]*attention.Call{}
	for _, layer := range layers {
		c := &attention.Call{Q: tensor.NewHeads(1, 12, n, 32), K: tensor.NewHeads(1, 12, n, 32), V: tensor.NewHeads(1, 12, n, 32)}
		for i, x := range [][]float32{c.Q.Data, c.K.Data, c.V.Data} {
			for j := range x {
				x[j] = float32(rng.New(uint64(layer)).Fold(uint64(i)).Normal(uint64(j)))
			}
		}
		calls[layer] = c
	}
	return calls
}

// Steps and passes have times of all methods, and with tol 0 no error beside softmax.
func TestWholeModelsAreMeasured(t *testing.T) {
	exact := method{Label: "exact", Name: "multipole", Set: map[string]string{"centres": "input", "tol": "0"}}
	for _, c := range []*wholeConfig{
		{Shape: wholeDecode, Layers: 2, Tokens: 512, Turns: 1, Steps: 2, From: []int{0, 3}},
		{Shape: wholePass, Layers: 2, Tokens: 1200, Turns: 1, From: []int{0}},
	} {
		c.Set = []method{softmax, exact, multipoleOf(16, 0, swapBlock, swapWindow)}
		config := c.config()
		config.Vocab = 1 << 10
		m, err := model.New(config, rng.New(1))
		if err != nil {
			t.Fatal(err)
		}
		run := c.pass
		want := len(c.Set)
		if c.Steps > 0 {
			run, want = c.decode, 4*want
		}
		list, err := run(&Work{Ctx: t.Context()}, m, widen(drawnCalls(c.From, c.Tokens), c.From))
		if err != nil {
			t.Fatal(err)
		}
		if len(list) != want {
			t.Fatalf("%s: %d results, want %d", c.name(), len(list), want)
		}
		for i, x := range list {
			method := i % len(c.Set)
			if (x.Error > 1e-5) != (method == 2) || x.Seconds < 0 || !(x.Exact > 0 && x.Exact < 1+1e-9) || method == 0 && x.Exact != 1 || (x.Bytes > 0) != (c.Steps > 0) {
				t.Errorf("%s: %+v", c.name(), x)
			}
		}
	}
}

// Two heads of 32 numbers lie side by side: 0 and 1, 2 and 3, then 1 and 2.
func TestWideHeads(t *testing.T) {
	calls := drawnCalls([]int{0}, 3)
	y := widen(calls, []int{0})[0]
	for to, from := range map[int][2]int{0: {0, 1}, 1: {2, 3}, 5: {10, 11}, 6: {1, 2}, 11: {11, 0}} {
		row := y.K.Head(0, to).Row(2)
		if row[5] != calls[0].K.Head(0, from[0]).Row(2)[5] || row[37] != calls[0].K.Head(0, from[1]).Row(2)[5] {
			t.Errorf("head %d is not of heads %v", to, from)
		}
	}
}

// A span behind 32768 tokens there are one block of 512 clusters in 16 groups, and a span; before that
// there are nine blocks of 1248 clusters in 63 groups, and a span.
func TestFarSums(t *testing.T) {
	for _, x := range []struct {
		n       int
		numbers float64
		open    float64
	}{
		{32769 + 512, (512+32)*(3*64+17+2) + 17*64*65, 2},
		{32769, (1248+32)*(3*64+64+2) + 64*64*65, 2},
		{32768, 1248*(3*64+63+2) + 63*64*65, 513},
		{100, 0, 101},
	} {
		if numbers, open := farSums(x.n, 64); numbers != x.numbers || open != x.open {
			t.Errorf("%d tokens have %g numbers and %g open keys, want %g and %g", x.n, numbers, open, x.numbers, x.open)
		}
	}
}
