package mechanism

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/internal/cpu"
	"github.com/farfield-ml/farfield/internal/kernel"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

var multipole = Row{
	Name:     "multipole",
	Doc:      "softmax whose far keys are expanded about the means of cells, exp(q·c̄/√D)·T_p(q·(k-c̄)/√D): multipole expansion",
	Source:   "Yang et al. 2003, Improved fast Gauss transform, which FAST (arXiv 2402.07901) names as its next step; here for exp(q·k)",
	Traits:   "positive denominators; with a codebook positive weights at orders 0 and 2, linear in the tokens, a state of fixed size; clusters of the input keep all keys",
	Linear:   true,
	MaxOrder: 2,
	Settings: []Setting{
		{"cells", "256", "K, the rows of the codebook, 1 to 65536"},
		{"block", "32", "with a codebook, B: all queries at B places in a row have the same near keys"},
		{"window", "16", "with a codebook, tokens before and after the block of a query that are near; a causal query has those before"},
		{"sinks", "1", "first tokens of a sequence, near to every query"},
		{"ends", "1", "last tokens of a sequence, near to every query of a call that is not causal"},
		{"tilt", "false", "with a codebook, weigh the keys of each cell by exp(r·k/√D) in its sums, for a query r of its own: orders 0 and 1"},
		{"adapt", "0", "Lloyd steps that fit the centres to the keys of a sequence, 0 to 100; above 0 calls are not causal"},
		{"centres", "codebook", "codebook; input, with order 0 alone: clusters of the keys of a call, of which those with large errors are near to a query"},
		{"tol", "0.05", "with centres=input, bound of the estimated relative error of a row, 0 to 1; 0: clusters of unlike keys are exact"},
		{"size", "0", "with centres=input, keys of a cluster on average; 0: the square root of an eighth of those that are clustered together"},
		{"least", "1024", "with centres=input, keys up to which a call that is not causal is softmax, since clusters would take longer"},
		{"span", "512", "with centres=input, keys of a span of causal calls: a query sees its span exactly, earlier ones by their clusters"},
		softmaxScaleSetting,
		seedSetting,
	},
	Constants: []Param{
		{"codebook", "(Hkv,cells,D)", "centres; a key belongs to the cell of the nearest; (1,cells,D) for all heads"},
	},
	Params: []Param{
		{"tilt", "(Hkv,cells,D)", "with tilt, r of each cell: the query about which its keys are expanded; zeros at first"},
	},
	Untrained: "codebook",
	fit: func(o *Options, shapes map[string][]int) {
		if s := shapes["codebook"]; len(s) == 3 {
			o.KeyHeads = s[0]
			o.setDefault("cells", strconv.Itoa(s[1]))
		}
		if shapes["tilt"] != nil {
			o.setDefault("tilt", "true")
		}
	},
	build: headwiseBuilder(newMultipole),
}

// multipoleAttention weighs the near keys of a query by exp(s q·k), and a far key by
// exp(s q·c̄)·T_p(s q·(k-c̄)). c̄ is the mean of all far keys of the cell. T_p is the Taylor
// polynomial of exp of degree p. The cell of a key is the nearest row of the codebook; it
// counts as a constant in gradients.
//
// With tilt a cell has a query r, and exp(s q·k) = exp(s r·k)·exp(s (q-r)·k) is expanded about
// r as well: a far key weighs exp(s r·k)·exp(s (q-r)·c̄)·T_p(s (q-r)·(k-c̄)), where c̄ is the mean
// with the weights exp(s r·k). The error goes by q-r in place of q.
type multipoleAttention struct {
	setting                           string
	order, block, window, sinks, ends int
	adapt                             int     // Lloyd steps
	scale                             float64 // s; 0: 1/√D

	// With centres=input there is no codebook.
	tol        float64 // bound of the estimated relative error of an output row
	size, span int     // average keys of a cluster, 0: clustersOf decides; keys of a span of causal calls
	least      int     // keys up to which a call that is not causal is softmax
	softmax    *headwise.PatternSoftmax

	codebook  *param.Param
	tilt      *param.Param // r, of the shape of codebook; nil: none
	constants param.Set
	params    *param.Set
}

func newMultipole(r *reader) (headwise.Function, error) {
	x := &multipoleAttention{order: r.order()}
	cells, err := r.Integer("cells", 1, maxCells)
	if err != nil {
		return nil, err
	}
	for _, s := range []struct {
		name  string
		least int
		to    *int
	}{{"block", 1, &x.block}, {"window", 0, &x.window}, {"sinks", 0, &x.sinks}, {"ends", 0, &x.ends}} {
		if *s.to, err = r.Integer(s.name, s.least, entry.MaxSettingTokens); err != nil {
			return nil, err
		}
	}
	if x.adapt, err = r.Integer("adapt", 0, 100); err != nil {
		return nil, err
	}
	if x.scale, err = r.SoftmaxScale(); err != nil {
		return nil, err
	}
	key, err := r.Key()
	if err != nil {
		return nil, err
	}
	centres, err := r.Choice("centres", "codebook", "input")
	if err != nil {
		return nil, err
	}
	for _, s := range []struct{ name, centres string }{{"cells", "codebook"}, {"block", "codebook"}, {"adapt", "codebook"}, {"tilt", "codebook"}, {"window", "codebook"}, {"tol", "input"}, {"size", "input"}, {"span", "input"}, {"least", "input"}} {
		at := slices.IndexFunc(r.row.Settings, func(x Setting) bool { return x.Name == s.name })
		if r.Text(s.name) != r.row.Settings[at].Default && s.centres != centres {
			return nil, r.Refuse(s.name, "centres="+s.centres)
		}
	}
	if centres == "input" {
		return newMultipoleInput(r, x)
	}
	shape := []int{max(r.o.KeyHeads, 1), cells, r.ParamWidth()}
	if r.o.KeyHeads == 0 {
		shape[0] = max(r.o.Heads, 1)
	}
	if err := r.Room("codebook", shape...); err != nil {
		return nil, err
	}
	x.codebook = x.constants.New("codebook", false, shape...)
	for i := range x.codebook.Data {
		x.codebook.Data[i] = float(float32(key.Normal(uint64(i)))) // the same in both precisions
	}
	tilted, err := r.Bool("tilt")
	if err != nil {
		return nil, err
	}
	more := ""
	if tilted {
		if x.order > 1 {
			return nil, r.Refuse("tilt", fmt.Sprintf("order 0 or 1, order is %d; tilt=false has all orders", x.order))
		}
		x.params, more = new(param.Set), " tilt"
		x.tilt = x.params.New("tilt", false, shape...)
	}
	x.setting = fmt.Sprintf("multipole order=%d cells=%d block=%d window=%d sinks=%d ends=%d adapt=%d scale=%s%s",
		x.order, cells, x.block, x.window, x.sinks, x.ends, x.adapt, entry.FormatScale(x.scale), more)
	return x, nil
}

func (x *multipoleAttention) Traits() attention.Traits {
	t := attention.Traits{Name: multipole.Name, Positive: x.order != 1, Causal: true, Streaming: true, Segments: true,
		PlacedQueries: true, PlacedHeads: x.codebook.Shape[0] > 1}
	if x.adapt > 0 {
		t.Causal, t.Streaming, t.Segments, t.NoCausal = false, false, false, "with adapt above 0 centres are fitted to all keys of a call, later ones too"
	}
	return t
}

func (x *multipoleAttention) Setting() string       { return x.setting }
func (x *multipoleAttention) Params() *param.Set    { return x.params }
func (x *multipoleAttention) Constants() *param.Set { return &x.constants }

func (x *multipoleAttention) Check(c *attention.Call) error {
	return x.checkHeads(c.Q.H, c.K.H, c.Q.D)
}

// checkHeads returns an error if the codebook does not fit the heads and the width of a call.
func (x *multipoleAttention) checkHeads(heads, keyHeads, d int) error {
	switch s := x.codebook.Shape; {
	case s[0] != 1 && s[0] != keyHeads && s[0] != heads:
		return fmt.Errorf("k: has %d heads, codebook of multipole is of %d", keyHeads, s[0])
	case s[2] != d:
		return fmt.Errorf("q: D is %d, codebook of multipole is of %d", d, s[2])
	}
	return nil
}

// book returns the codebook of a key head. A codebook of all query heads serves a key head with
// the centres of the first query head that shares it.
func (x *multipoleAttention) book(keyHead, keyHeads int) tensor.Mat {
	return x.headRows(x.codebook.Data, keyHead, keyHeads)
}

// headRows returns the rows [cells,D] of a key head as a view of numbers that have the shape of
// the codebook.
func (x *multipoleAttention) headRows(of []float, keyHead, keyHeads int) tensor.Mat {
	heads, k, d := x.codebook.Shape[0], x.codebook.Shape[1], x.codebook.Shape[2]
	head := 0
	if heads > 1 {
		head = keyHead * (heads / keyHeads)
	}
	return tensor.Mat{Data: of[head*k*d:][:k*d], Rows: k, Cols: d, Stride: d}
}

// factor returns s for rows of width d.
func (x *multipoleAttention) factor(d int) float {
	if x.scale == 0 {
		return float(1 / math.Sqrt(float64(d)))
	}
	return float(x.scale)
}

// floorDiv returns ⌊p/n⌋. p may be negative.
func floorDiv(p, n int) int {
	if p < 0 {
		return -((-p + n - 1) / n)
	}
	return p / n
}

// counted holds the operations of Forward for one head of a sequence.
type counted struct {
	cells, near  float64 // cells and near keys that a query meets, at most
	flops, moves float64 // of products, and of sums and moments
}

func (x *multipoleAttention) count(s attention.Shape) (c counted) {
	n, m, d, dv := float64(s.N), float64(s.M), float64(s.D), float64(s.Dv)
	all := float64(x.codebook.Shape[1])
	c.near = float64(x.block) + 2*float64(x.window) + float64(x.sinks) + float64(x.ends)
	if s.Causal {
		c.near = float64(x.block) + float64(x.window) + float64(x.sinks)
	}
	c.near = min(c.near, m)
	if c.near == m {
		c.flops = 2 * n * m * (d + dv)
		return c
	}
	l := x.layout(s.D, s.Dv)
	c.cells = min(all, m)
	c.flops = 2*m*all*d*float64(1+x.adapt) + 2*n*c.near*(d+dv) + 2*n*c.cells*(d+float64(l.features)*dv)
	c.moves = 6 * m * float64(l.width)
	return c
}

func (x *multipoleAttention) Cost(s attention.Shape) headwise.Cost {
	n, m, d, dv := float64(s.N), float64(s.M), float64(s.D), float64(s.Dv)
	c, l := x.count(s), x.layout(s.D, s.Dv)
	rows := min(float64(x.block), multipoleRows, n)
	return headwise.Cost{
		FLOPs: c.flops + c.moves,
		Bytes: entry.ElementBytes()*(n+m+c.cells*(3*float64(l.width)+3*d+float64(l.features)*dv)+(rows+d+dv)*c.near+rows*c.cells) + 4*m,
	}
}

// multipoleSpeed holds the costs of a head beside matrix products, in operations at the peak
// rate: token for a query with its key, number for a number that a key adds to the sums of its
// cell, weight for a weight, and distance for the distance of a key from a centre. share is the
// share of the peak rate that products reach.
type multipoleSpeed struct{ token, number, weight, distance, share float64 }

// multipoleSpeeds are fitted to the processor time of calls of 2048 tokens, 64 to 1024 cells of
// order 0 and D from 16 to 128 on AMD EPYC (Zen 5). Half of the calls are within 11 % of the fit.
// distance is 0 for kernels in which the search for the nearest centre takes no longer than the
// products that it searches.
var multipoleSpeeds = map[string]multipoleSpeed{
	cpu.AVX512:  {70000, 314, 58, 0, 0.92},
	cpu.AVX2:    {35000, 220, 39, 0, 0.91},
	cpu.NEON:    {35000, 220, 39, 0, 0.91},
	cpu.Generic: {7700, 123, 48, 48, 0.83},
}

// CostAtPeak returns the expected cost of Forward for one head of a sequence, in operations at
// the peak rate. Of Lloyd steps it counts the products only.
func (x *multipoleAttention) CostAtPeak(s attention.Shape) float64 {
	speed, c := multipoleSpeeds[kernel.Active[float]().Name], x.count(s)
	tokens, weights, distances := float64(s.N+s.M)/2, float64(s.N)*(c.cells+c.near), 0.0
	if c.moves > 0 {
		distances = float64(s.M) * float64(x.codebook.Shape[1])
	}
	return tokens*speed.token + c.moves/6*speed.number + weights*speed.weight + distances*speed.distance + c.flops/speed.share
}

// unitRoundoff returns the largest relative error of one rounding to the element type.
func unitRoundoff() float64 {
	if entry.ElementBytes() == 4 {
		return 0x1p-24
	}
	return 0x1p-53
}
