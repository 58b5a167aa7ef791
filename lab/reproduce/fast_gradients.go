package reproduce

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

var fastGradients = Row{
	Name:   "fast-gradients",
	Doc:    "largest derivative of an output by a score beside the claimed bound; norms of gradients by mechanism, depth and length, and in trainings without clipping",
	Source: "Gerami et al. 2024, FAST, arXiv 2402.07901, section 2.3, eq. 14-15",
	Claim:  "0 ≤ ∂o_ij/∂s_il ≤ 10·max|v|/(2N+3), hence gradients that neither vanish nor explode",
	Seeds:  true,
	pieces: gradientPieces, outcome: gradientOutcome,
}

// derivatives describes the derivatives of outputs by scores, of T_2 in float64. A bound
// holds if its share is at most 1; each is the largest over a column of values.
type derivatives struct {
	Largest           float64 `json:"largest"`
	Smallest          float64 `json:"least"`
	Claimed           float64 `json:"claimed"`  // largest share of 10·max|v|/(2N+3)
	ShareOfTightBound float64 `json:"true"`     // largest share of (max v - min v)/√N
	Negative          float64 `json:"negative"` // share of derivatives below 0
}

type derivativeConfig struct {
	Data string `json:"data"` // random, or aligned: one key at the score that has the largest derivative, all others at -1
	N    int    `json:"n"`
	D    int    `json:"d"`
	Seed uint64 `json:"seed"`
}

func (c *derivativeConfig) name() string {
	return fmt.Sprintf("score-%s-n%d-seed-%d", c.Data, c.N, c.Seed)
}

type normConfig struct {
	Method method `json:"method"`
	Layers int    `json:"layers"`
	N      int    `json:"n"`
	Heads  int    `json:"heads"`
	Width  int    `json:"width"`
	Batch  int    `json:"batch"`
	Seed   uint64 `json:"seed"`
}

func (c *normConfig) name() string {
	return fmt.Sprintf("norm-%s-layers-%d-n%d-seed-%d", c.Method.file(), c.Layers, c.N, c.Seed)
}

// norms holds gradient norms of a model with its first weights.
type norms struct {
	First float64 `json:"first"` // of the projections of the first layer's attention
	Last  float64 `json:"last"`  // of the last layer's
	All   float64 `json:"all"`
}

var (
	derivativeLengths = []int{16, 64, 256, 1024}
	normDepths        = []int{1, 2, 4, 8}
	normMethods       = []method{softmax, fastmax1, fastmax2, published2, taylorshift, linear}
)

func normLengths(o *Options) []int {
	return pick(o.Budget, []int{64, 512}, []int{64, 512, 2048}, []int{64, 512, 2048, 8192})
}

func gradientSeeds(o *Options) []uint64 { return o.seeds(pick(o.Budget, 1, 3, 5)) }

func derivativeConfigs(o *Options) (list []derivativeConfig) {
	for _, data := range []string{"random", "aligned"} {
		for _, n := range derivativeLengths {
			for _, seed := range gradientSeeds(o) {
				list = append(list, derivativeConfig{data, n, 64, seed})
			}
		}
	}
	return list
}

func normConfigs(o *Options) (list []normConfig) {
	for _, m := range normMethods {
		for _, layers := range normDepths {
			for _, n := range normLengths(o) {
				for _, seed := range gradientSeeds(o) {
					list = append(list, normConfig{m, layers, n, 4, 64, max(1, 512/n), seed})
				}
			}
		}
	}
	return list
}

func gradientPieces(o *Options) (list []Piece, err error) {
	for _, c := range derivativeConfigs(o) {
		n := float64(c.N)
		list = append(list, Piece{Name: c.name(), Config: c, FLOPs: plainLoopCost * 6 * n * n * float64(c.D), run: func(*Work) (any, error) { return c.run() }})
	}
	for _, c := range normConfigs(o) {
		list = append(list, Piece{Name: c.name(), Config: c, FLOPs: c.model().TrainFLOPs(float64(c.Batch * c.N)), run: func(*Work) (any, error) { return c.run() }})
	}
	trained, err := trainedLessons.pieces(o)
	return append(list, trained...), err
}

// tokens returns queries, keys and values of the data, [1,1,N,D].
func (c *derivativeConfig) tokens() (q, k, v oracle.Heads) {
	key := rng.New(c.Seed)
	normal := func(key rng.Key, n, d int) oracle.Heads {
		x := oracle.NewHeads(1, 1, n, d)
		for i := range x.Data {
			x.Data[i] = key.Normal(uint64(i))
		}
		return x
	}
	q, k, v = normal(key.Fold(1), c.N, c.D), normal(key.Fold(2), c.N, c.D), normal(key.Fold(3), c.N, c.D)
	if c.Data == "random" {
		return q, k, v
	}
	// With y = 1 + s of one key and 0 of the others the derivative is
	// (max v - min v)·2y(N-1)/(y² + N)², which is largest at y = √(N/3).
	score := min(math.Sqrt(float64(c.N)/3)-1, float64(c.D))
	for i := range c.N {
		target, s := q.Data[i*c.D:(i+1)*c.D], -1.0
		copy(target, q.Data[:c.D]) // all queries are the first
		if i == 0 {
			s = score
		}
		place(k.Data[i*c.D:(i+1)*c.D], target, s/float64(c.D))
		for j := range c.D {
			v.Data[i*c.D+j] = -1
			if i == 0 {
				v.Data[j] = 1
			}
		}
	}
	return q, k, v
}

// place turns k, whose mean it takes away, such that its cosine with q, less its
// mean, is the one given.
func place(k, q []float64, cosine float64) {
	n := float64(len(k))
	centre := func(x []float64) (y []float64) {
		m, _ := mean(x)
		for _, v := range x {
			y = append(y, v-m)
		}
		return y
	}
	dot := func(a, b []float64) (sum float64) {
		for i := range a {
			sum += a[i] * b[i]
		}
		return sum
	}
	a, b := centre(q), centre(k)
	along := dot(a, b) / dot(a, a)
	for i := range b {
		b[i] -= along * a[i]
	}
	la, lb := math.Sqrt(dot(a, a)/n), math.Sqrt(dot(b, b)/n)
	for i := range k {
		k[i] = cosine*a[i]/la + math.Sqrt(1-cosine*cosine)*b[i]/lb
	}
}

// standardise gives the rows of x mean 0 and variance 1.
func standardise(x oracle.Heads) {
	for i := range x.N {
		row := x.Head(0, 0).Row(i)
		centre, _ := mean(row)
		square := 0.0
		for d := range row {
			row[d] -= centre
			square += row[d] * row[d] / float64(len(row))
		}
		for d := range row {
			row[d] /= math.Sqrt(square)
		}
	}
}

// run computes every derivative by FAST, eq. 14: f'(s_il)/g_i·(v_lj - o_ij).
func (c *derivativeConfig) run() (x derivatives, err error) {
	q, k, values := c.tokens()
	standardise(q)
	standardise(k)
	v := values.Head(0, 0)
	low, high := make([]float64, c.D), make([]float64, c.D)
	for j := range c.D {
		low[j], high[j] = math.Inf(1), math.Inf(-1)
		for l := range c.N {
			low[j], high[j] = min(low[j], v.Row(l)[j]), max(high[j], v.Row(l)[j])
		}
	}
	s, out := make([]float64, c.N), make([]float64, c.D)
	negative := 0.0
	for i := range c.N {
		g := 0.0
		clear(out)
		for l := range c.N {
			s[l] = 0
			for d, a := range q.Head(0, 0).Row(i) {
				s[l] += a * k.Head(0, 0).Row(l)[d]
			}
			f := taylor(2, s[l])
			g += f
			for j, value := range v.Row(l) {
				out[j] += f * value
			}
		}
		for l := range c.N {
			for j, value := range v.Row(l) {
				d := taylor(1, s[l]) / g * (value - out[j]/g)
				if d < 0 {
					negative++
				}
				x.Largest, x.Smallest = max(x.Largest, d), min(x.Smallest, d)
				limit := max(high[j], -low[j])
				x.Claimed = max(x.Claimed, math.Abs(d)/(10*limit/float64(2*c.N+3)))
				x.ShareOfTightBound = max(x.ShareOfTightBound, math.Abs(d)*math.Sqrt(float64(c.N))/(high[j]-low[j]))
			}
		}
	}
	x.Negative = negative / float64(c.N*c.N*c.D)
	return x, nil
}

func (c *normConfig) model() model.Config {
	return model.Config{
		Kind: model.Decoder, Vocab: 256, Layers: c.Layers, Heads: c.Heads, Width: c.Width, Context: c.N,
		Positions: model.Rotary, Mechanism: c.Method.Name, Order: c.Method.Order, Set: c.Method.Set, Tied: true,
	}
}

func (c *normConfig) run() (x norms, err error) {
	key := rng.New(c.Seed)
	m, err := model.New(c.model(), key.Fold(0))
	if err != nil {
		return x, err
	}
	n := c.Batch * c.N
	b := &model.Batch{B: c.Batch, N: c.N, Tokens: make([]int32, n), Targets: make([]int32, n)}
	for i := range n {
		b.Tokens[i], b.Targets[i] = int32(key.Fold(1).Intn(uint64(i), 256)), int32(key.Fold(2).Intn(uint64(i), 256))
	}
	if _, err := m.Forward(context.Background(), b); err != nil {
		return x, err
	}
	if err := m.Backward(1); err != nil {
		return x, err
	}
	norm := func(prefix string) float64 {
		sum := 0.0
		for _, p := range m.Params().All() {
			if strings.HasPrefix(p.Name, prefix) {
				for _, g := range p.Grad {
					sum += float64(g) * float64(g)
				}
			}
		}
		return math.Sqrt(sum)
	}
	x.First, x.Last, x.All = norm("layers.0.attn."), norm(fmt.Sprintf("layers.%d.attn.", c.Layers-1)), norm("")
	return x, nil
}

func gradientOutcome(o *Options, r *Results) (*Outcome, error) {
	out := new(Outcome)
	t := report.Table{
		Title: "Derivatives of outputs by scores, p = 2 as published",
		Head:  []string{"data", "N", "largest |∂o/∂s|", "of the claimed bound", "of the true bound", "derivatives below 0"},
		Note: "Claimed: between 0 and 10·max|v|/(2N+3). True: ±(max v − min v)/√N. " +
			"Random: N(0,1) queries, keys and values of width 64. Aligned: one key where the derivative is largest, the others at score −1.",
	}
	worst, negative, met := 0.0, 0.0, 0.0
	for _, data := range []string{"random", "aligned"} {
		for _, n := range derivativeLengths {
			var all derivatives
			found := false
			for _, c := range derivativeConfigs(o) {
				if c.Data != data || c.N != n {
					continue
				}
				d, there, err := get[derivatives](r, c.name())
				if err != nil {
					return nil, err
				}
				if there {
					found = true
					all.Largest, all.Claimed = max(all.Largest, d.Largest, -d.Smallest), max(all.Claimed, d.Claimed)
					all.ShareOfTightBound, all.Negative = max(all.ShareOfTightBound, d.ShareOfTightBound), max(all.Negative, d.Negative)
				}
			}
			if found {
				addRow(&t, data, fmt.Sprint(n), digits(all.Largest), digits(all.Claimed), digits(all.ShareOfTightBound), percent(all.Negative))
				worst, met, negative = max(worst, all.Claimed), max(met, all.ShareOfTightBound), max(negative, all.Negative)
			}
		}
	}
	out.Tables = append(out.Tables, t)
	if len(t.Rows) > 0 {
		if worst > 1 {
			out.find("The claimed bound 10·max|v|/(2N+3) does not hold: derivatives reach %s times it; up to %s of them are below 0.", digits(worst), percent(negative))
		}
		out.find("The bound (max v − min v)/√N holds: derivatives reach %s of it.", percent(met))
	}
	if err := out.norms(o, r); err != nil {
		return nil, err
	}
	return out, out.addTrained(o, r)
}

// norms tells how gradients go with depth.
func (out *Outcome) norms(o *Options, r *Results) error {
	lengths := normLengths(o)
	t := report.Table{
		Title: "Gradients of a decoder with its first weights",
		Head:  []string{"mechanism", "N"},
		Note: "Norm of the gradients of the first layer's attention over the norm in the last, by the number of layers; then the norm of all gradients of the deepest. " +
			"Width 64, 4 heads, random bytes.",
	}
	for _, depth := range normDepths[1:] {
		t.Head = append(t.Head, fmt.Sprintf("%d layers", depth))
	}
	t.Head = append(t.Head, "norm of all")
	deepest := normDepths[len(normDepths)-1]
	f := report.Figure{Title: "First layer's attention gradients over the last layer's", XLabel: "layers", YLabel: "ratio"}
	least, most := math.Inf(1), 0.0
	for _, m := range normMethods {
		for _, n := range lengths {
			cells := []string{m.Label, fmt.Sprint(n)}
			line := report.Series{Name: fmt.Sprintf("%s, N %d", m.Label, n), Colour: m.Label, Mark: fmt.Sprint(n)}
			all := 0.0
			for _, depth := range normDepths {
				var ratios []float64
				for _, c := range normConfigs(o) {
					if c.Method.Label != m.Label || c.N != n || c.Layers != depth {
						continue
					}
					x, found, err := get[norms](r, c.name())
					if err != nil {
						return err
					}
					if found {
						ratios, all = append(ratios, x.First/x.Last), x.All
					}
				}
				if len(ratios) == 0 {
					if depth > 1 {
						cells = append(cells, none)
					}
					continue
				}
				ratio, _ := mean(ratios)
				line.X, line.Y = append(line.X, float64(depth)), append(line.Y, ratio)
				if depth > 1 {
					cells = append(cells, digits(ratio))
				}
				if depth == deepest {
					least, most = min(least, ratio), max(most, ratio)
				}
			}
			if len(line.X) > 0 {
				addRow(&t, append(cells, digits(all))...)
				f.Series = append(f.Series, line)
			}
		}
	}
	out.Tables = append(out.Tables, t)
	if len(f.Series) > 0 {
		out.Figures = append(out.Figures, Drawing{"depth", f})
	}
	if most > 0 {
		out.find("At %d layers the first layer's gradients are %s to %s times the last's, over all mechanisms and lengths.", deepest, digits(least), digits(most))
	}
	return nil
}
