package factorised_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/internal/attention/costmodel"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

var (
	calibrate = flag.Bool("calibrate", false, "measure the speeds of this instruction set and write their table")
	judge     = flag.Bool("judge", false, "measure how much longer the form chosen takes than the better one")
)

// kindly are one mechanism of every kind of the table, in its order.
var kindly = [...]struct {
	name  string
	order int
}{costmodel.Softmax: {"softmax", 0}, costmodel.Mapped: {"linear", 0}, costmodel.Degree1: {"fastmax", 1}, costmodel.Degree2: {"fastmax", 2}, costmodel.Degree3: {"fastmax", 3}}

// cell is a place in the table, or between two.
type cell struct {
	m            attention.Mechanism
	kind         costmodel.Kernel
	d            int
	causal, back bool
}

// cells returns the cells of all kinds, directions and masks for the given widths.
func cells(t *testing.T, widths ...int) []*cell {
	var list []*cell
	for i := range 4 {
		for kind, k := range kindly {
			m, err := mechanism.New(k.name, mechanism.Options{Order: k.order})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range widths {
				list = append(list, &cell{m, costmodel.Kernel(kind), d, i%2 == 1, i/2 == 1})
			}
		}
	}
	return list
}

func (c *cell) String() string {
	direction, mask := "forward", "unmasked"
	if c.back {
		direction = "backward"
	}
	if c.causal {
		mask = "causal"
	}
	return fmt.Sprintf("%s/%s/%s/D=%d", direction, mask, kindName(c.kind), c.d)
}

func kindName(kind costmodel.Kernel) string {
	k := kindly[kind]
	if k.order == 0 {
		return k.name
	}
	return fmt.Sprint(k.name, k.order)
}

// shape is one head over n tokens.
func (c *cell) shape(n int) attention.Shape {
	return attention.Shape{B: 1, H: 1, Hkv: 1, N: n, M: n, D: c.d, Dv: c.d, Causal: c.causal}
}

// predict returns the costs of both forms over n tokens at a speed.
func (c *cell) predict(n int, s costmodel.Speed) (direct, linear float64) {
	x := c.tally(n)
	return x.DirectCost(s), x.LinearCost(s)
}

func (c *cell) tally(n int) costmodel.Tally { return factorised.TallyOf(c.m, c.shape(n), c.back) }

// chunk is the number of tokens of a chunk.
func (c *cell) chunk() int {
	s := c.shape(1)
	s.Form = attention.Linear
	return c.m.Plan(s).Chunk
}

// onThread runs f on a thread of its own, and attention on no other.
func onThread(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	par.SetThreads(1)
	defer par.SetThreads(0)
	f()
}

// seconds returns how long one of n calls takes.
func seconds(n int, f func()) float64 {
	start := clock()
	for range n {
		f()
	}
	return (clock() - start).Seconds() / float64(n)
}

// crossing is the smallest N, in steps of 8, from which on the linear form
// costs less than the direct one.
func (c *cell) crossing(s costmodel.Speed) int {
	const most = 1 << 17
	lo, hi := 0, most/8
	if c.causal { // up to a chunk both are the direct form
		lo = c.chunk()/8 + 1
	}
	for lo < hi {
		n := (lo + hi) / 2
		if direct, linear := c.predict(8*n, s); linear < direct {
			hi = n
		} else {
			lo = n + 1
		}
	}
	return 8 * lo
}

// longest bounds the seconds that both forms together take at a place that is
// measured.
const longest = 0.4

// reach returns n or, where both forms would take too long, less, but not less
// than least: then it is 0.
func (c *cell) reach(n, least int, s costmodel.Speed, peak float64) int {
	for ; n >= least; n = n * 7 / 64 * 8 {
		if direct, linear := c.predict(n, s); (direct+linear)/peak < longest {
			return n
		}
	}
	return 0
}

// near reports whether a and b differ by no more than a part of b.
func near(a, b int, part float64) bool { return math.Abs(float64(a-b)) <= part*float64(b) }

// call returns a call of the mechanism in the form that s asks for. If it is
// backward, first is the form of the forward pass before it.
func (c *cell) call(t *testing.T, s attention.Shape, first attention.Form) func() {
	key := rng.New(1)
	random := func(h, n, d int) tensor.Heads {
		key = key.Fold(1)
		x := tensor.NewHeads(s.B, h, n, d)
		for i := range x.Data {
			x.Data[i] = tensor.Float(2*key.Float64(uint64(i)) - 1)
		}
		return x
	}
	in := &attention.Call{
		Q: random(s.H, s.N, s.D), K: random(s.Hkv, s.M, s.D), V: random(s.Hkv, s.M, s.Dv),
		Causal: s.Causal, Form: s.Form,
	}
	if c.back {
		in.Form = first
	}
	out := tensor.NewHeads(s.B, s.H, s.N, s.Dv)
	keep := new(attention.Saved)
	forward := func() {
		if err := c.m.Forward(out, in, keep); err != nil {
			t.Fatal(err)
		}
	}
	if !c.back {
		return forward
	}
	forward()
	in.Form = s.Form
	dout := random(s.H, s.N, s.Dv)
	g := &attention.Grads{
		DQ: tensor.NewHeads(s.B, s.H, s.N, s.D), DK: tensor.NewHeads(s.B, s.Hkv, s.M, s.D),
		DV: tensor.NewHeads(s.B, s.Hkv, s.M, s.Dv),
	}
	return func() {
		if err := c.m.Backward(g, dout, out, in, keep); err != nil {
			t.Fatal(err)
		}
	}
}

// isa is the instruction set that is measured.
var isa = kernel.Active[tensor.Float]().Name

// compare runs the peak and every f in turns for about the budget, at least three
// times, and returns median costs. The cost of the first is relative to the peak, the
// other costs are ratios to the first: a slow period of the machine slows both.
func compare(budget time.Duration, f ...func()) (cost []float64) {
	repeat := make([]int, len(f))
	for i, f := range f {
		const least = 300 * time.Microsecond
		f()
		for repeat[i] = 1; ; repeat[i] *= 2 {
			if seconds(repeat[i], f)*float64(repeat[i]) >= least.Seconds() {
				break
			}
		}
	}
	ratios := make([][]float64, len(f))
	for start := clock(); len(ratios[0]) < 3 || clock()-start < budget; {
		peak := kernel.FMAPeak(isa, 100*time.Microsecond)
		var first float64
		for i, f := range f {
			s := seconds(repeat[i], f)
			if i == 0 {
				first = s
				s *= peak
			} else {
				s /= first
			}
			ratios[i] = append(ratios[i], s)
		}
	}
	for i, r := range ratios {
		slices.Sort(r)
		cost = append(cost, (r[(len(r)-1)/2]+r[len(r)/2])/2)
		if i > 0 {
			cost[i] *= cost[0]
		}
	}
	return cost
}

// costs measures the direct form over n tokens and, where the mechanism has it,
// the linear one; backward each after a forward pass in its own form or, if auto
// is set, in that which is chosen.
func (c *cell) costs(t *testing.T, n int, budget time.Duration, auto bool) (direct, linear float64) {
	s := c.shape(n)
	s.Form = attention.Direct
	first := func() attention.Form {
		if auto {
			return attention.Auto
		}
		return s.Form
	}
	forms := []func(){c.call(t, s, first())}
	if c.m.Traits().Linear {
		s.Form = attention.Linear
		forms = append(forms, c.call(t, s, first()))
	}
	x := compare(budget, forms...)
	return x[0], x[len(x)-1]
}

// calibrate returns the speed of c, starting from the estimate s. It measures at the length
// where s predicts that the two forms take the same time, corrects s, and repeats this with the
// corrected s. If that length is beyond all lengths that are measured, or the linear form takes
// too long there, it uses the Linear share of the next narrower width, before.
func (c *cell) calibrate(t *testing.T, s, before costmodel.Speed, peak float64) costmodel.Speed {
	const short, long = 64, 768 // tokens
	const most = 1 << 14
	const budget = 150 * time.Millisecond
	costs := map[int]float64{} // of the direct form
	direct := func(n int) float64 {
		if costs[n] == 0 {
			x := c.shape(n)
			x.Form = attention.Direct
			costs[n] = compare(budget/2, c.call(t, x, attention.Direct))[0]
		}
		return costs[n]
	}
	// line sets the costs of the direct form from n tokens, far fewer tokens and more.
	// At most half of the cost of n tokens is per token.
	line := func(n int) {
		far := long
		if n*n >= short*long {
			far = short
		}
		one := c.tally(n)
		x, pairs := one.Tokens, one.Pairs
		two := c.tally(far)
		y, others := two.Tokens, two.Pairs
		s.Token = (direct(far)*pairs - direct(n)*others) / (y*pairs - x*others)
		s.Token = min(max(s.Token, 0), direct(n)/(2*x))
		s.Direct = pairs / (direct(n) - x*s.Token)
	}
	if !c.m.Traits().Linear {
		line(1024)
		s.Open, s.Linear = 1, 1
		t.Logf("token %.0f, direct %.3f", s.Token, s.Direct)
		return s
	}
	line(long)
	s.Open = 1
	least := short
	if c.causal {
		direct, linear := c.costs(t, c.chunk(), budget, false)
		s.Open = linear / direct
		least = c.chunk() * 5 / 4 // less has next to no features
	}
	best := s
	best.Linear = 1
	far := c.crossing(best) > most
	var at []int
	var found []costmodel.Speed
	for range 4 {
		n := c.reach(min(max(c.crossing(s), least), most), least, s, peak)
		if n == 0 || far {
			s.Linear = before.Linear
			t.Logf("token %.0f, direct %.3f, open %.3f; linear %.3f as of the width before", s.Token, s.Direct, s.Open, s.Linear)
			return s
		}
		if last := len(at) - 1; last >= 1 && near(n, at[last], 0.03) {
			break
		}
		one, other := c.costs(t, n, budget, false)
		ratio := one / other
		costs[n] = one
		line(n)
		x := c.tally(n)
		tokens, open, moments := x.Tokens, x.Open, x.Moments
		if c.causal {
			other -= s.Open * (tokens*s.Token + open/s.Direct)
		}
		if s.Linear = moments / other; s.Linear < 0 || s.Linear > 2 {
			s.Linear = 2 // no features to speak of
		}
		t.Logf("N = %d: direct/linear %.3f; token %.0f, direct %.3f, open %.3f, linear %.3f",
			n, ratio, s.Token, s.Direct, s.Open, s.Linear)
		at, found = append(at, n), append(found, s)
	}
	// The mean of the measurements next to the last.
	var mean costmodel.Speed
	count := 0.0
	for i, v := range found {
		if near(at[i], at[len(at)-1], 0.1) {
			mean.Token += v.Token
			mean.Direct += v.Direct
			mean.Linear += v.Linear
			count++
		}
	}
	return costmodel.Speed{Token: mean.Token / count, Direct: mean.Direct / count, Open: s.Open, Linear: mean.Linear / count}
}

func TestCalibrate(t *testing.T) {
	if !*calibrate {
		t.Skip("takes minutes: -calibrate")
	}
	peak := kernel.FMAPeak(isa, 50*time.Millisecond)
	table := *costmodel.Speeds(isa)
	for _, c := range cells(t, costmodel.Widths[:]...) {
		row := table.Row(c.kind, c.causal, c.back)
		i := slices.Index(costmodel.Widths[:], c.d)
		t.Run(c.String(), func(t *testing.T) {
			onThread(func() { row[i] = c.calibrate(t, row[i], row[max(i-1, 0)], peak) })
			// At once, so that nothing is lost where this is stopped.
			if err := os.WriteFile("../../internal/attention/costmodel/"+isa+".txt", []byte(table.Format(runtime.GOARCH+" "+isa)), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestJudge measures both forms around their crossings, also at widths between the
// widths of the table, and how much longer the chosen form takes than the faster one.
func TestJudge(t *testing.T) {
	if !*judge {
		t.Skip("takes minutes: -judge")
	}
	peak := kernel.FMAPeak(isa, 50*time.Millisecond)
	table := costmodel.Speeds(isa)
	var losses []float64
	for i, c := range cells(t, 8, 10, 14, 16, 18, 28, 32, 56, 64, 80, 128) {
		if !c.m.Traits().Linear {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			onThread(func() {
				s := table.Interpolate(c.kind, c.d, c.causal, c.back)
				x := float64(c.crossing(s))
				for j, n := range []int{int(0.75 * x), int(0.93 * x), int(1.07 * x), int(1.3 * x), 64 << (i % 9)} {
					if n < 64 || n > 1<<14 {
						n = 64 + 17*((i+j)%20)
					}
					if c.reach(n, 64, s, peak) < n {
						continue
					}
					direct, linear := c.costs(t, n, 60*time.Millisecond, true)
					p := c.m.Plan(c.shape(n))
					form := p.Form
					if c.back {
						form = p.Back
					}
					chosen := direct
					if form == attention.Linear {
						chosen = linear
					}
					loss := chosen / min(direct, linear)
					a, b := c.predict(n, s)
					t.Logf("N %5d %-6v auto/best %.3f; direct/linear %.3f, expected %.3f", n, form, loss, direct/linear, a/b)
					losses = append(losses, loss)
				}
			})
		})
	}
	if len(losses) == 0 {
		t.Skip("no place is asked for")
	}
	slices.Sort(losses)
	for _, q := range []float64{0.5, 0.9, 0.95, 0.99, 1} {
		t.Logf("auto/best of %d: %.3f at quantile %g", len(losses), losses[int(q*float64(len(losses)-1))], q)
	}
}
