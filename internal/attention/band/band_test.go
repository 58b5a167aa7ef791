package band

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/internal/arena"
	"github.com/farfield-ml/farfield/internal/attention/rowscale"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/tensor"
)

// problem is a window of w keys before, and after keys after, the place of a query.
type problem struct {
	n, m, w, after, d, dv int
	masked, kept, decayed bool
	scale                 float64
}

var problems = []problem{
	{n: 1, m: 1, w: 1, d: 1, dv: 1, scale: 1},
	{n: 70, m: 70, w: 64, d: 16, dv: 16, scale: 0.3},
	{n: 130, m: 130, w: 7, d: 5, dv: 3, scale: 1},
	{n: 100, m: 140, w: 33, d: 32, dv: 48, scale: 0.2},
	{n: 90, m: 90, w: 20, after: 19, d: 16, dv: 16, scale: 0.4},
	{n: 60, m: 60, w: 16, d: 8, dv: 16, masked: true, scale: 0.5},
	{n: 60, m: 60, w: 16, d: 8, dv: 16, kept: true, decayed: true, scale: 0.5},
	{n: 60, m: 60, w: 16, d: 8, dv: 4, masked: true, decayed: true, scale: 0.5},
	{n: 80, m: 80, w: 40, d: 16, dv: 16, scale: 20},   // weights beyond the power of the last score
	{n: 80, m: 80, w: 40, d: 16, dv: 16, scale: 5000}, // powers of 2 beyond farPower
}

// weights returns the weights of row r by the formula, and their logarithm's sum.
func (b *Block) weights(keys tensor.Mat, r int) (w []float64, log float64) {
	w = make([]float64, keys.Rows)
	top, age, begun := math.Inf(-1), 0.0, false
	for j := int(b.Ends[r]) - 1; j >= int(b.Starts[r]); j-- {
		sees := b.sees(r, j)
		if begun = begun || sees; sees {
			for c, x := range keys.Row(j) {
				w[j] += float64(x) * float64(b.Queries[r*b.LDQ+c])
			}
			w[j] += age
			top = max(top, w[j])
		} else {
			w[j] = math.Inf(-1)
		}
		if begun && b.Rates != nil {
			age += float64(b.Rates[j])
		}
	}
	sum := 0.0
	for j := range w {
		if j < int(b.Starts[r]) || j >= int(b.Ends[r]) || math.IsInf(w[j], -1) {
			w[j] = 0
			continue
		}
		w[j] = math.Exp(w[j] - top)
		sum += w[j]
	}
	for j := range w {
		if sum > 0 {
			w[j] /= sum
		}
	}
	return w, top + math.Log(sum)
}

// block returns the block of a problem, and the rows of its keys and values.
func (p *problem) block(ar *arena.Arena, t *kernel.Table[float], seed uint64) (b *Block, keys, values tensor.Mat) {
	r := rand.New(rand.NewPCG(seed, uint64(p.n)))
	random := func(rows, cols int, scale float64) tensor.Mat {
		x := tensor.Mat{Data: make([]float, rows*kernel.Pad(cols)), Rows: rows, Cols: cols, Stride: kernel.Pad(cols)}
		for i := range rows {
			for c := range cols {
				x.Row(i)[c] = float(scale * r.NormFloat64())
			}
		}
		return x
	}
	q := random(p.n, p.d, p.scale)
	keys, values = random(p.m, p.d, 1), random(p.m, p.dv, 1)
	b = &Block{
		Table: t, Arena: ar, Queries: q.Data, LDQ: q.Stride, LDK: kernel.Pad(p.m), LDV: values.Stride, D: p.d, Dv: p.dv,
		Factor: math.Log2E, SlowestRate: -1e280,
	}
	if p.masked {
		b.Mask = make([]bool, p.m)
		for j := range b.Mask {
			if b.Mask[j] = r.IntN(3) > 0; !b.Mask[j] {
				clear(values.Row(j))
			}
		}
	}
	if p.kept {
		b.Keep, b.KeepStride = make([]bool, p.n*p.m), p.m
		for i := range b.Keep {
			b.Keep[i] = r.IntN(4) > 0
		}
	}
	if p.decayed {
		b.Rates = make([]float, p.m)
		for j := range b.Rates {
			b.Rates[j] = -float(r.Float64() / 4)
		}
	}
	b.Keys, b.Values = make([]float, p.d*b.LDK), values.Data
	t.Transpose(b.Keys, b.LDK, keys.Data, keys.Stride, p.m, p.d)
	for i := range p.n {
		at := i + p.m - p.n
		b.Starts, b.Ends = append(b.Starts, int32(max(at-p.w+1, 0))), append(b.Ends, int32(min(at+p.after+1, p.m)))
	}
	return b, keys, values
}

// Means and gradients are near the formula's, and a row of its own has the same bits as in a block.
func TestWindowSoftmaxFollowsFormula(t *testing.T) {
	for _, table := range kernel.Tables[float]() {
		for i, p := range problems {
			t.Run(fmt.Sprint(table.Name, i), func(t *testing.T) { p.check(t, table, uint64(i)) })
		}
	}
}

func (p *problem) check(t *testing.T, table *kernel.Table[float], seed uint64) {
	ar := arena.Acquire()
	defer ar.Release()
	b, keys, values := p.block(ar, table, seed)
	out := make([]float, p.n*p.dv)
	sums := rowscale.TakeSums(ar, p.n)
	b.Attend(out, p.dv, sums)
	// A score of size s is off by about s·√d·2⁻²⁴, and the logarithm of a weight with it.
	tolerance := 4e-6 * (1 + p.scale*float64(p.d))
	near := func(what string, got float, want, tolerance float64) {
		t.Helper()
		if !(math.Abs(float64(got)-want) <= tolerance) {
			t.Fatalf("%s is %v, want %v ± %.2g", what, got, want, tolerance)
		}
	}
	width, widthV := kernel.Pad(p.d), kernel.Pad(p.dv)
	g := &Grad{
		KeyRows: keys.Data, ValuesT: make([]float, p.dv*b.LDK), DOut: make([]float, p.n*widthV), LDO: widthV,
		Delta: make([]float, p.n), Top: make([]float, p.n), DQueries: make([]float, p.n*width),
		DKeys: make([]float, p.m*width), DValues: make([]float, p.m*widthV), LDV: widthV,
	}
	table.Transpose(g.ValuesT, b.LDK, values.Data, values.Stride, p.m, p.dv)
	dq, dk, dv := make([]float64, p.n*width), make([]float64, p.m*width), make([]float64, p.m*widthV)
	r := rand.New(rand.NewPCG(seed, 77))
	for i := range p.n {
		w, log := b.weights(keys, i)
		do := g.DOut[i*widthV:][:p.dv]
		var delta float64
		for c := range p.dv {
			do[c] = float(r.NormFloat64())
			var mean float64
			for j := range w {
				mean += w[j] * float64(values.Row(j)[c])
			}
			near(fmt.Sprintf("mean %d of query %d", c, i), out[i*p.dv+c], mean, tolerance)
			delta -= mean * float64(do[c])
		}
		if seen := !math.IsInf(log, -1); seen {
			near(fmt.Sprint("logarithm of query ", i), sums.Log(i, math.Log2E), log, tolerance*(1+p.scale))
			g.Top[i] = sums.Log(i, math.Log2E) * math.Log2E
		} else if sums.Sum[i] != 0 {
			t.Fatalf("query %d sees no key, and has the sum %v", i, sums.Sum[i])
		}
		g.Delta[i] = float(delta)
		for j := range w {
			dw := delta
			for c := range p.dv {
				dw += float64(do[c]) * float64(values.Row(j)[c])
				dv[j*widthV+c] += w[j] * float64(do[c])
			}
			for c := range p.d {
				dq[i*width+c] += w[j] * dw * float64(keys.Row(j)[c])
				dk[j*width+c] += w[j] * dw * float64(b.Queries[i*b.LDQ+c])
			}
		}
		one := *b
		one.Starts, one.Ends, one.Queries = b.Starts[i:][:1], b.Ends[i:][:1], b.Queries[i*b.LDQ:]
		if b.Keep != nil {
			one.Keep = b.Keep[i*b.KeepStride:]
		}
		alone, sum := make([]float, p.dv), rowscale.TakeSums(ar, 1)
		one.Attend(alone, p.dv, sum)
		for c, x := range alone {
			if x != out[i*p.dv+c] {
				t.Fatalf("mean %d of query %d is %v alone, %v in a block", c, i, x, out[i*p.dv+c])
			}
		}
		weights := make([]float, b.Ends[i]-b.Starts[i])
		b.Weights(i, weights, sum)
		for c, x := range weights {
			if sum.Sum[0] != 0 {
				near(fmt.Sprintf("weight %d of query %d", c, i), x/sum.Sum[0], w[int(b.Starts[i])+c], tolerance)
			}
		}
	}
	if far := rowscale.FarRowsOf(ar, g.Top); far != nil {
		b.AddFarRows(far)
		far.Finish()
		g.Base = far.Base
	}
	b.Backward(g)
	size := tolerance * 8 * float64(p.dv) * (1 + p.scale)
	for i, want := range dq {
		near(fmt.Sprint("dq ", i), g.DQueries[i], want, size)
	}
	for i, want := range dk {
		near(fmt.Sprint("dk ", i), g.DKeys[i], want, size*(1+p.scale))
	}
	for i, want := range dv {
		near(fmt.Sprint("dv ", i), g.DValues[i], want, size)
	}
}

// A value that is not finite reaches the queries that see its key, and no others.
func TestInfiniteValueReachesQueriesThatSeeIt(t *testing.T) {
	const at = 40
	p := &problem{n: 90, m: 90, w: 20, d: 16, dv: 16, scale: 0.3}
	ar := arena.Acquire()
	defer ar.Release()
	b, _, values := p.block(ar, kernel.Active[float](), 5)
	values.Row(at)[3] = float(math.Inf(1))
	out := make([]float, p.n*p.dv)
	b.Attend(out, p.dv, rowscale.TakeSums(ar, p.n))
	for i := range p.n {
		sees := at >= int(b.Starts[i]) && at < int(b.Ends[i])
		if got := math.IsInf(float64(out[i*p.dv+3]), 1); got != sees {
			t.Errorf("query %d sees the key: %v, has an infinite mean: %v", i, sees, got)
		}
		for _, c := range []int{0, 2, 4, 15} {
			if x := float64(out[i*p.dv+c]); x-x != 0 {
				t.Errorf("query %d has the mean %v in channel %d", i, x, c)
			}
		}
	}
}
