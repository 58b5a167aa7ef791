package reproduce

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/rng"
)

var fastKernel = Row{
	Name:   "fast-kernel",
	Doc:    "T_p against the exponential: by score, and as matrices of attention by the rank of queries and keys",
	Source: "Gerami et al. 2024, FAST, arXiv 2402.07901, section 2.4",
	Claim:  "the factorised kernel has a near and far field like softmax's exponential; no error is printed",
	Seeds:  true,
	pieces: kernelPieces, outcome: kernelOutcome,
}

const (
	kernelWidth  = 8
	kernelOrders = 4
	kernelReach  = 4 // largest score of the curves
	kernelPoints = 8 // of the curves, a unit of score
)

// kernelRanks lists ranks of the matrices of queries and of keys; the last has
// independent channels.
var kernelRanks = []int{1, 2, 4, kernelWidth}

// kernelScales multiply scores of rows that have mean 0 and deviation 1: as
// published, and by the usual 1/√D.
var kernelScales = []struct {
	name  string
	scale float64 // 0: 1/√D
}{{"1", 1}, {"1/√D", 0}}

func kernelTokens(o *Options) int { return pick(o.Budget, 192, 256, 512) }

type kernelConfig struct {
	N      int     `json:"n"`
	D      int     `json:"d"`
	Rank   int     `json:"rank"`
	Scale  float64 `json:"scale"`
	Orders int     `json:"orders"`
	Seed   uint64  `json:"seed"`
}

// kernelErrors compares attention matrices A_p with the exponential's A for the same
// scores: ‖A_p - A‖/‖A‖ in Frobenius' norm; element p-1 has order p.
type kernelErrors struct {
	Uniform float64   `json:"uniform"` // of the weights 1/N
	Error   []float64 `json:"error"`
	// Best is the least error that any matrix of the rank F_p has.
	Best     []float64 `json:"best"`
	Features []int     `json:"features"` // F_p
	Negative []float64 `json:"negative"` // share of weights below 0
}

// kernelCurve is T_p and the exponential by score.
type kernelCurve struct {
	Score  []float64   `json:"score"`
	Exp    []float64   `json:"exp"`
	Taylor [][]float64 `json:"taylor"`
}

func kernelName(rank int, scale string, seed uint64) string {
	if scale != "1" {
		scale = "root"
	}
	return fmt.Sprintf("rank-%d-scale-%s-seed-%d", rank, scale, seed)
}

func kernelPieces(o *Options) ([]Piece, error) {
	list := []Piece{{
		Name: "scores", Config: map[string]int{"reach": kernelReach, "points": kernelPoints, "orders": kernelOrders},
		run: func(*Work) (any, error) { return kernelCurves(), nil },
	}}
	list = append(list, Piece{Name: "worked-example", Config: workedLengths, run: func(*Work) (any, error) { return workedExample(), nil }})
	for _, s := range kernelScales {
		for _, rank := range kernelRanks {
			for _, seed := range o.seeds(pick(o.Budget, 1, 3, 10)) {
				c := kernelConfig{kernelTokens(o), kernelWidth, rank, s.scale, kernelOrders, seed}
				n := float64(c.N)
				list = append(list, Piece{
					Name: kernelName(rank, s.name, seed), Config: c,
					FLOPs: plainLoopCost * 60 * n * n * n, // of the singular values, ten sweeps
					run:   func(*Work) (any, error) { return c.run() },
				})
			}
		}
	}
	return list, nil
}

// workedLengths are sizes of the worked example of eq. 16-18; the paper has the first.
var workedLengths = []int{3, 30, 300}

// workedCount are the operations of u_i = Σ_j a_i b_j d_j, as a matrix times a vector and
// factorised, and the largest difference of their results.
type workedCount struct {
	Size             int     `json:"size"`
	Products         int     `json:"products"`
	Sums             int     `json:"sums"`
	ProductsFactored int     `json:"products_factored"`
	SumsFactored     int     `json:"sums_factored"`
	Difference       float64 `json:"difference"`
}

// workedExample computes the example both ways, and counts what it does beyond the matrix.
func workedExample() (list []workedCount) {
	for _, n := range workedLengths {
		x := workedCount{Size: n}
		key := rng.New(1)
		a := func(i int) float64 { return key.Fold(1).Normal(uint64(i)) }
		b := func(j int) float64 { return key.Fold(2).Normal(uint64(j)) }
		d := func(j int) float64 { return key.Fold(3).Normal(uint64(j)) }
		all := 0.0 // x of eq. 18
		for j := range n {
			if j > 0 {
				x.SumsFactored++
			}
			x.ProductsFactored++
			all += b(j) * d(j)
		}
		for i := range n {
			u := 0.0
			for j := range n {
				if j > 0 {
					x.Sums++
				}
				x.Products++
				u += a(i) * b(j) * d(j) // a_i b_j is an element of the matrix
			}
			x.ProductsFactored++
			x.Difference = max(x.Difference, math.Abs(u-a(i)*all))
		}
		list = append(list, x)
	}
	return list
}

// addWorked adds the table of the worked example.
func (out *Outcome) addWorked(r *Results) error {
	list, found, err := get[[]workedCount](r, "worked-example")
	if err != nil || !found {
		return err
	}
	t := report.Table{
		Title: "The worked example of eq. 16-18, counted", Head: []string{"size", "products", "sums", "products, factorised", "sums, factorised", "largest difference"},
		Note: "u = (a bᵀ) d, and a (bᵀ d). The paper prints 9 products and 6 sums, and 6 and 2, at size 3.",
	}
	for _, x := range list {
		addRow(&t, fmt.Sprint(x.Size), fmt.Sprint(x.Products), fmt.Sprint(x.Sums), fmt.Sprint(x.ProductsFactored), fmt.Sprint(x.SumsFactored), digits(x.Difference))
	}
	out.Tables = append(out.Tables, t)
	return nil
}

func kernelCurves() kernelCurve {
	var c kernelCurve
	for i := -kernelReach * kernelPoints; i <= kernelReach*kernelPoints; i++ {
		s := float64(i) / kernelPoints
		c.Score, c.Exp = append(c.Score, s), append(c.Exp, math.Exp(s))
	}
	for p := 1; p <= kernelOrders; p++ {
		var y []float64
		for _, s := range c.Score {
			y = append(y, taylor(p, s))
		}
		c.Taylor = append(c.Taylor, y)
	}
	return c
}

// taylor is T_p(s) = Σ_{l≤p} s^l/l! (FAST, eq. 8).
func taylor(p int, s float64) float64 {
	y := 1.0
	for l := p; l > 0; l-- {
		y = 1 + y*s/float64(l)
	}
	return y
}

// lowRank returns rows of that rank, of N(0,1) channels where the rank is the
// width.
func lowRank(key rng.Key, n, d, rank int) oracle.Heads {
	x := oracle.NewHeads(1, 1, n, d)
	for i := range n {
		for r := range rank {
			z := key.Fold(0).Normal(uint64(i*rank + r))
			for j := range d {
				b := key.Fold(1).Normal(uint64(r*d+j)) / math.Sqrt(float64(rank))
				if rank == d {
					b = 0
					if r == j {
						b = 1
					}
				}
				x.Data[i*d+j] += z * b
			}
		}
	}
	return x
}

func (c *kernelConfig) run() (e kernelErrors, err error) {
	key := rng.New(c.Seed)
	call := &oracle.Call{
		Q: lowRank(key.Fold(1), c.N, c.D, c.Rank), K: lowRank(key.Fold(2), c.N, c.D, c.Rank),
		V: oracle.NewHeads(1, 1, c.N, 1),
	}
	weights := func(m oracle.Mechanism) []float64 {
		m.Norm, m.Scale = oracle.Standard, c.Scale
		return m.Forward(call).W.Data
	}
	exact := weights(oracle.Mechanism{Exp: true})
	flat := make([]float64, len(exact))
	for i := range flat {
		flat[i] = 1 / float64(c.N)
	}
	e.Uniform = distance(flat, exact)
	singular := singularValues(exact, c.N)
	coef := []float64{1}
	for p := 1; p <= c.Orders; p++ {
		coef = append(coef, coef[p-1]/float64(p))
		a := weights(oracle.Mechanism{Coef: coef})
		negative := 0
		for _, w := range a {
			if w < 0 {
				negative++
			}
		}
		f := binomial(c.D+p, p)
		e.Error = append(e.Error, distance(a, exact))
		e.Best = append(e.Best, tail(singular, f))
		e.Features = append(e.Features, f)
		e.Negative = append(e.Negative, float64(negative)/float64(len(a)))
	}
	return e, nil
}

// distance is ‖a - b‖/‖b‖.
func distance(a, b []float64) float64 {
	var d, n float64
	for i := range b {
		d += (a[i] - b[i]) * (a[i] - b[i])
		n += b[i] * b[i]
	}
	return math.Sqrt(d / n)
}

// tail is the share of the singular values, which fall, that the first f leave.
func tail(s []float64, f int) float64 {
	var rest, all float64
	for i, x := range s {
		all += x * x
		if i >= f {
			rest += x * x
		}
	}
	return math.Sqrt(rest / all)
}

func binomial(n, k int) int {
	b := 1
	for i := 1; i <= k; i++ {
		b = b * (n - k + i) / i
	}
	return b
}

func kernelOutcome(o *Options, r *Results) (*Outcome, error) {
	out := new(Outcome)
	curve, found, err := get[kernelCurve](r, "scores")
	if err != nil {
		return nil, err
	}
	if found {
		out.scores(&curve)
	}
	seeds := o.seeds(pick(o.Budget, 1, 3, 10))
	for _, s := range kernelScales {
		t := report.Table{
			Title: fmt.Sprintf("Error of the attention matrix, scores times %s", s.name),
			Head:  []string{"rank of Q and K", "p", "F", "error", "best of rank F", "uniform weights", "weights below 0"},
			Note: fmt.Sprintf("‖A_p − A‖/‖A‖ by Frobenius, A the matrix of the exponential of the same scores; N = %d, D = %d, rows of N(0,1) numbers "+
				"or random combinations of as many vectors as the rank, then mean 0 and deviation 1; mean of %d seeds.", kernelTokens(o), kernelWidth, len(seeds)),
		}
		var second, uniform []float64
		for _, rank := range kernelRanks {
			var all []kernelErrors
			for _, seed := range seeds {
				e, found, err := get[kernelErrors](r, kernelName(rank, s.name, seed))
				if err != nil {
					return nil, err
				}
				if found {
					all = append(all, e)
				}
			}
			if len(all) == 0 {
				continue
			}
			average := func(of func(*kernelErrors) float64) float64 {
				var x []float64
				for i := range all {
					x = append(x, of(&all[i]))
				}
				m, _ := mean(x)
				return m
			}
			for p := 1; p <= kernelOrders; p++ {
				error := average(func(e *kernelErrors) float64 { return e.Error[p-1] })
				flat := average(func(e *kernelErrors) float64 { return e.Uniform })
				if p == 2 {
					second, uniform = append(second, error), append(uniform, flat)
				}
				addRow(&t, fmt.Sprint(rank), fmt.Sprint(p), fmt.Sprint(all[0].Features[p-1]), digits(error),
					digits(average(func(e *kernelErrors) float64 { return e.Best[p-1] })), digits(flat),
					percent(average(func(e *kernelErrors) float64 { return e.Negative[p-1] })))
			}
		}
		out.Tables = append(out.Tables, t)
		if n := len(second); n > 1 {
			out.find("Scores times %s: p = 2 is %s from softmax's matrix at rank %d and %s at rank %d, where uniform weights are %s and %s.", s.name,
				digits(second[0]), kernelRanks[0], digits(second[n-1]), kernelRanks[n-1], digits(uniform[0]), digits(uniform[n-1]))
		}
	}
	return out, out.addWorked(r)
}

// scores draws and tells how far T_p follows the exponential.
func (out *Outcome) scores(c *kernelCurve) {
	f := report.Figure{Title: "Weight of a key by score", XLabel: "score s", YLabel: "weight before division", XLinear: true, YLinear: true}
	f.Series = append(f.Series, report.Series{Name: "exp", X: c.Score, Y: c.Exp, Style: report.PlainLine})
	t := report.Table{
		Title: "T_p against the exponential by score", Head: []string{"p", "scores within 10 % of exp", "error at |s| = 1", "error at |s| = 2", "least value"},
		Note: fmt.Sprintf("Errors are |T_p(s) − exp(s)|/exp(s), the larger of both signs; least value between −%d and %d.", kernelReach, kernelReach),
	}
	for i, y := range c.Taylor {
		p := i + 1
		f.Series = append(f.Series, report.Series{Name: fmt.Sprintf("T%d", p), X: c.Score, Y: y, Style: report.PlainLine})
		low, high, least := 0.0, 0.0, math.Inf(1)
		off := func(s float64) float64 { return math.Abs(taylor(p, s)-math.Exp(s)) / math.Exp(s) }
		for low > -kernelReach && off(low-0.01) <= 0.1 {
			low -= 0.01
		}
		for high < kernelReach && off(high+0.01) <= 0.1 {
			high += 0.01
		}
		for _, v := range y {
			least = min(least, v)
		}
		addRow(&t, fmt.Sprint(p), fmt.Sprintf("%.2f to %.2f", low, high), percent(max(off(1), off(-1))), percent(max(off(2), off(-2))), digits(least))
		if p == 2 {
			out.find("T_2 is within 10 %% of exp for scores from %.2f to %.2f and never below %s.", low, high, digits(least))
		}
	}
	out.Tables = append(out.Tables, t)
	out.Figures = append(out.Figures, Drawing{"scores", f})
}
