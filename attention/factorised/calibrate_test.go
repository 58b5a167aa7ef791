package factorised_test

import (
	"flag"
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/attention/internal/costmodel"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
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
