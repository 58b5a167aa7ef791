package reproduce

import (
	"fmt"
	"math"
	"strconv"

	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/rng"
)

var taylorShiftScaling = Row{
	Name:   "taylorshift-scaling",
	Doc:    "mean sizes of TaylorShift's intermediate results before and after normalisation, simulated",
	Source: "Nauen et al. 2024, TaylorShift, arXiv 2403.02920, section 3.3, table of sizes",
	Claim:  "N/√d, N/d, √N(1 + 1/4d), N(2 + 1/d), √(d/N) before normalisation; 1, 1, (1 + 1/4d)/√(Nd), 2 + 1/d, 1 after",
	Seeds:  true,
	pieces: scalingPieces, outcome: scalingOutcome,
}

type scalingConfig struct {
	N          int    `json:"n"`
	D          int    `json:"d"`
	Normalised bool   `json:"normalised"` // queries and keys times d^¼, values over N
	Sphere     bool   `json:"sphere"`     // values of length 1; else of N(0,1) channels
	Seed       uint64 `json:"seed"`
}

func (c *scalingConfig) name() string {
	name := fmt.Sprintf("d%d-n%d-seed-%d", c.D, c.N, c.Seed)
	if c.Sphere {
		name += "-sphere"
	}
	if c.Normalised {
		name += "-normalised"
	}
	return name
}

// sizes are means over the queries of Euclidean norms of rows, of the moments
// the norm of the whole. Values have a column of ones before them.
type sizes struct {
	Moments    float64 `json:"kkv"`          // (K⊠K)ᵀV
	Second     float64 `json:"qkqkv"`        // (QKᵀ)²V
	First      float64 `json:"qkv"`          // QKᵀV
	Den        float64 `json:"denominator"`  // of T_2
	DoubledDen float64 `json:"denominator2"` // of x² + 2x + 2
	Output     float64 `json:"output"`       // after normalisation times √(N/d)
}

func (s *sizes) list() []float64 {
	return []float64{s.Moments, s.Second, s.First, s.DoubledDen, s.Output}
}

// published returns the sizes of the page's table, in the order of sizes.list.
func (c *scalingConfig) published() []float64 {
	n, d := float64(c.N), float64(c.D)
	if c.Normalised {
		return []float64{1, 1, (1 + 1/(4*d)) / math.Sqrt(n*d), 2 + 1/d, 1}
	}
	return []float64{n / math.Sqrt(d), n / d, math.Sqrt(n) * (1 + 1/(4*d)), n * (2 + 1/d), math.Sqrt(d / n)}
}

func scalingConfigs(o *Options) (list []scalingConfig) {
	widths := pick(o.Budget, []int{8, 16, 32}, []int{8, 16, 32, 64}, []int{8, 16, 32, 64})
	lengths := pick(o.Budget, []int{256, 1024}, []int{256, 1024, 4096}, []int{256, 1024, 4096, 16384})
	for _, sphere := range []bool{false, true} {
		for _, normalised := range []bool{false, true} {
			for _, d := range widths {
				for _, n := range lengths {
					for _, seed := range o.seeds(pick(o.Budget, 1, 3, 10)) {
						list = append(list, scalingConfig{n, d, normalised, sphere, seed})
					}
				}
			}
		}
	}
	return list
}

func scalingPieces(o *Options) (list []Piece, err error) {
	for _, c := range scalingConfigs(o) {
		n, d := float64(c.N), float64(c.D)
		list = append(list, Piece{Name: c.name(), Config: c, FLOPs: plainLoopCost * 4 * n * d * d * d, run: func(*Work) (any, error) { return c.run(), nil }})
	}
	return list, nil
}

func (c *scalingConfig) run() (s sizes) {
	n, d := c.N, c.D
	key := rng.New(c.Seed)
	rows := func(key rng.Key, width int, sphere bool, scale float64) []float64 {
		x := make([]float64, n*width)
		for i := range n {
			row, sum := x[i*width:(i+1)*width], 0.0
			for j := range row {
				row[j] = key.Normal(uint64(i*width + j))
				sum += row[j] * row[j]
			}
			for j := range row {
				if sphere {
					row[j] /= math.Sqrt(sum)
				}
				row[j] *= scale
			}
		}
		return x
	}
	side, weight := 1.0, 1.0
	if c.Normalised {
		side, weight = math.Pow(float64(d), 0.25), 1/float64(n)
	}
	q, k := rows(key.Fold(1), d, true, side), rows(key.Fold(2), d, true, side)
	bare := rows(key.Fold(3), d, c.Sphere, weight)
	w := d + 1
	second, first, zeroth := make([]float64, d*d*w), make([]float64, d*w), make([]float64, w)
	v := make([]float64, w)
	add := func(y []float64, s float64, x []float64) {
		for i := range y {
			y[i] += s * x[i]
		}
	}
	for j := range n {
		v[0] = weight
		copy(v[1:], bare[j*d:(j+1)*d])
		add(zeroth, 1, v)
		for a := range d {
			add(first[a*w:(a+1)*w], k[j*d+a], v)
			for b := range d {
				f := a*d + b
				add(second[f*w:(f+1)*w], k[j*d+a]*k[j*d+b], v)
			}
		}
	}
	norm := func(x []float64) (sum float64) {
		for _, v := range x {
			sum += v * v
		}
		return math.Sqrt(sum)
	}
	s.Moments = norm(second)
	// Normalised queries and keys are longer by √d in products, which the terms
	// of lower degree make up for: ½(qk)² + √d·qk + d.
	lower := side * side
	two, one, sum := make([]float64, w), make([]float64, w), make([]float64, w)
	for i := range n {
		clear(two)
		clear(one)
		for a := range d {
			add(one, q[i*d+a], first[a*w:(a+1)*w])
			for b := range d {
				f := a*d + b
				add(two, q[i*d+a]*q[i*d+b], second[f*w:(f+1)*w])
			}
		}
		for j := range sum {
			sum[j] = two[j]/2 + lower*one[j] + lower*lower*zeroth[j]
		}
		share := 1 / float64(n)
		s.Second += share * norm(two)
		s.First += share * norm(one)
		s.Den += share * sum[0]
		s.Output += share * norm(sum[1:]) / sum[0]
	}
	s.DoubledDen = 2 * s.Den
	if c.Normalised {
		s.Output *= math.Sqrt(float64(n) / float64(d))
	}
	return s
}

func scalingOutcome(o *Options, r *Results) (*Outcome, error) {
	out := new(Outcome)
	names := []string{"(K⊠K)ᵀV", "(QKᵀ)²V", "QKᵀV", "denominator", "Y"}
	for _, sphere := range []bool{false, true} {
		values := "values of N(0,1) channels, as in the authors' program"
		if sphere {
			values = "values of length 1, as the page says"
		}
		for _, normalised := range []bool{false, true} {
			title := "Sizes before normalisation, " + values
			if normalised {
				title = "Sizes after normalisation, " + values
			}
			t := report.Table{Title: title, Head: []string{"d", "N"},
				Note: "Simulated / published. Queries and keys on the unit sphere; values with a column of ones before them. Means of Euclidean norms of rows, of (K⊠K)ᵀV the norm of the whole. " +
					"Denominators are of x² + 2x + 2, twice T_2's, which the printed size is of; after normalisation they have the factor d that cancels in the quotient."}
			t.Head = append(t.Head, names...)
			var ratios [5][]float64
			seen := map[[2]int]bool{}
			for _, c := range scalingConfigs(o) {
				if c.Sphere != sphere || c.Normalised != normalised || seen[[2]int{c.D, c.N}] {
					continue
				}
				seen[[2]int{c.D, c.N}] = true
				var sums [5]float64
				count := 0.0
				for _, seed := range o.seeds(pick(o.Budget, 1, 3, 10)) {
					c.Seed = seed
					s, found, err := get[sizes](r, c.name())
					if err != nil {
						return nil, err
					}
					if found {
						count++
						for i, x := range s.list() {
							sums[i] += x
						}
					}
				}
				if count == 0 {
					continue
				}
				cells := []string{fmt.Sprint(c.D), fmt.Sprint(c.N)}
				for i, p := range c.published() {
					measured := sums[i] / count
					ratios[i] = append(ratios[i], measured/p)
					cells = append(cells, fmt.Sprintf("%s / %s", digits(measured), digits(p)))
				}
				addRow(&t, cells...)
			}
			out.Tables = append(out.Tables, t)
			if len(t.Rows) == 0 {
				continue
			}
			text := ""
			for i, name := range names {
				low, high := math.Inf(1), 0.0
				for _, x := range ratios[i] {
					low, high = min(low, x), max(high, x)
				}
				text += fmt.Sprintf("; %s %s to %s", name, digits(low), digits(high))
			}
			out.find("%s: simulated over published%s.", title, text[1:])
			if normalised {
				low, high := math.Inf(1), 0.0
				for i, row := range t.Rows {
					d, _ := strconv.ParseFloat(row[0], 64)
					for _, j := range []int{2, 3} {
						low, high = min(low, ratios[j][i]/d), max(high, ratios[j][i]/d)
					}
				}
				out.find("After normalisation QKᵀV and the denominator are %s to %s times d of the printed sizes.", digits(low), digits(high))
			}
		}
	}
	return out, nil
}
