package reproduce

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/report"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/stream"
	"github.com/farfield-ml/farfield/tensor"
)

var carry = Row{
	Name:   "carry",
	Doc:    "how the error of a state grows with the tokens that it has met: float32 sums that are rounded and compensated, against float64",
	Source: "Higham 2002, Accuracy and Stability of Numerical Algorithms, chapter 4; the bounds of docs/numerics.md",
	Claim:  "the error of a sum of n terms grows with n at most, the error of a compensated one does not until n u ≈ 1",
	pieces: carryPieces, outcome: carryOutcome,
}

// carryConfig is a stream of tokens that three states meet.
type carryConfig struct {
	Method  method `json:"method"`
	D       int    `json:"d"`
	First   int64  `json:"first"` // tokens after which queries are read first
	Last    int64  `json:"last"`
	Queries int    `json:"queries"`
	Seed    uint64 `json:"seed"`
}

func (c *carryConfig) name() string { return fmt.Sprintf("%s-d%d", c.Method.file(), c.D) }

// carried is what queries of N tokens read, against float64: differences and bounds
// in parts of the largest number of a row, the largest of all rows.
type carried struct {
	N                int64
	Rounded          float64
	Compensated      float64
	RoundedBound     float64 // 0: beyond what it holds for
	CompensatedBound float64
}

func carryConfigs(o *Options) []carryConfig {
	return []carryConfig{{fastmax2, 16, 1 << 10, pick[int64](o.Budget, 1<<22, 1<<26, 1<<28), 64, 7}}
}

func carryPieces(o *Options) (list []Piece, err error) {
	for _, c := range carryConfigs(o) {
		state := 2 * float64(c.Last) * float64(binomial(c.D+2, 2)*(c.D+1))
		list = append(list, Piece{Name: c.name(), Config: c, FLOPs: (2 + plainLoopCost) * state, run: func(w *Work) (any, error) { return c.run(w) }})
	}
	return list, nil
}

// carryWindow is the tokens that are made at a time.
const carryWindow = 1 << 12

func (c *carryConfig) run(w *Work) (list []carried, err error) {
	src, err := stream.NewSyntheticSource(c.Last, c.D, 1, c.Seed)
	if err != nil {
		return nil, err
	}
	single, err := mechanism.New(c.Method.Name, c.Method.options(1, c.D, 0))
	if err != nil {
		return nil, err
	}
	shape := attention.Shape{B: 1, H: 1, Hkv: 1, N: 1, M: int(c.First), D: c.D, Dv: c.D, Causal: true, Form: attention.Linear}
	shape.Chunk = single.Plan(shape).Chunk
	exact := newExactSums(c.D)
	carries := []attention.Carry{attention.Rounded, attention.Compensated}
	var states []attention.State
	for _, shape.Carry = range carries {
		s, err := single.NewState(shape)
		if err != nil {
			return nil, err
		}
		states = append(states, s)
	}
	queries := src.NewWindow(c.Queries, stream.Queries)
	if _, err := src.FillWindow(queries, 0, 0, c.Queries); err != nil {
		return nil, err
	}
	q := queries.Call.Q
	got, want := tensor.NewHeads(1, 1, c.Queries, c.D), oracle.NewHeads(1, 1, c.Queries, c.D)

	keys, largest := src.NewWindow(carryWindow, stream.Keys), 0.0
	for at, next := int64(0), c.First; at < c.Last; {
		if err := w.Ctx.Err(); err != nil {
			return nil, err
		}
		n, err := src.FillWindow(keys, 0, at, int(min(carryWindow, next-at)))
		if err != nil {
			return nil, err
		}
		for _, x := range keys.Call.V.Data[:n*c.D] {
			largest = max(largest, math.Abs(float64(x)))
		}
		for _, s := range states {
			if err := s.Absorb(&keys.Call); err != nil {
				return nil, err
			}
		}
		exact.add(keys.Call.K.Data[:n*c.D], keys.Call.V.Data[:n*c.D])
		at += int64(n)
		w.reportShare(float64(at) / float64(c.Last))
		if at < next {
			continue
		}
		next *= 2
		for i := range want.N {
			exact.read(want.Head(0, 0).Row(i), q.Head(0, 0).Row(i))
		}
		line := carried{N: at}
		for i, s := range states {
			if err := s.Read(got, &attention.Call{Q: q}); err != nil {
				return nil, err
			}
			shape.N, shape.M, shape.Form, shape.Carry = int(at), int(at), attention.Step, carries[i]
			e, b := c.judge(got, want, single.Plan(shape).Bound, largest)
			if carries[i] == attention.Rounded {
				line.Rounded, line.RoundedBound = e, b
			} else {
				line.Compensated, line.CompensatedBound = e, b
			}
		}
		list = append(list, line)
	}
	return list, nil
}

// judge returns the largest difference of a row and what the bound of the sums makes
// of it, in parts of the row's largest number. Rows have length √D and f is at least
// ½, so that the terms of a denominator are at most 2·f(√D·√D/√D) times their sum.
func (c *carryConfig) judge(got tensor.Heads, want oracle.Heads, sums, largest float64) (worst, bound float64) {
	s := math.Sqrt(float64(c.D))
	cancel := 2 * (1 + s + s*s/2)
	for i := range want.N {
		var off, size float64
		for j, x := range want.Head(0, 0).Row(i) {
			off, size = max(off, math.Abs(float64(got.Head(0, 0).Row(i)[j])-x)), max(size, math.Abs(x))
		}
		worst, bound = max(worst, off/size), max(bound, sums*cancel*(largest+size)/size)
	}
	if sums*cancel > 1./6 {
		bound = 0
	}
	return worst, bound
}

// exactSums holds the sums of fastmax of order 2 in float64, for one head of width d: of each
// monomial of degree 2 of (1, k̂), and of its products with the values. k̂ has mean 0 and
// variance 1.
type exactSums struct {
	d    int
	sums []float64 // [monomials,1+d]
}

func newExactSums(d int) *exactSums { return &exactSums{d, make([]float64, binomial(d+2, 2)*(1+d))} }

// row returns 1 and the d channels of x, normalised.
func (s *exactSums) row(x []float32) []float64 {
	y := make([]float64, 1+s.d)
	centre, square := 0.0, 0.0
	for _, v := range x {
		centre += float64(v) / float64(s.d)
	}
	for _, v := range x {
		square += (float64(v) - centre) * (float64(v) - centre) / float64(s.d)
	}
	y[0] = 1
	for i, v := range x {
		y[1+i] = (float64(v) - centre) / math.Sqrt(square)
	}
	return y
}

// add adds the tokens k and v [tokens,d].
func (s *exactSums) add(k, v []float32) {
	for ; len(k) > 0; k, v = k[s.d:], v[s.d:] {
		y, at := s.row(k[:s.d]), 0
		for i := range y {
			for j := i; j <= s.d; j++ {
				p, row := y[i]*y[j], s.sums[at:][:1+s.d]
				row[0] += p
				for c, x := range v[:s.d] {
					row[1+c] += p * float64(x)
				}
				at += 1 + s.d
			}
		}
	}
}

// read sets o to the output of query q. A score x = q̂·k̂/√D weighs 1 + x + x²/2.
func (s *exactSums) read(o []float64, q []float32) {
	y, den, at := s.row(q), 0.0, 0
	for i := range y[1:] {
		y[1+i] /= math.Sqrt(float64(s.d))
	}
	clear(o)
	for i := range y {
		for j := i; j <= s.d; j++ {
			w := y[i] * y[j]
			if i == j && i > 0 {
				w /= 2
			}
			row := s.sums[at:][:1+s.d]
			den += w * row[0]
			for c := range o {
				o[c] += w * row[1+c]
			}
			at += 1 + s.d
		}
	}
	for c := range o {
		o[c] /= den
	}
}

func carryOutcome(o *Options, r *Results) (*Outcome, error) {
	out := new(Outcome)
	for _, c := range carryConfigs(o) {
		list, found, err := get[[]carried](r, c.name())
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		table := report.Table{
			Title: fmt.Sprintf("Error of %s at D = %d, in parts of the largest |o| of a row", c.Method.Label, c.D),
			Head:  []string{"tokens", "rounded", "its bound", "compensated", "its bound", "rounded / compensated"},
			Note: fmt.Sprintf("The largest of %d queries that read all tokens so far, against a float64 state of the same tokens (stream.SyntheticSource, seed %d). "+
				"Bounds add all roundings as if they agreed; there is none where it would be more than a sixth.", c.Queries, c.Seed),
		}
		f := report.Figure{Title: "Error of a state over its tokens", XLabel: "tokens", YLabel: "error / largest |o| of a row"}
		rounded, compensated := report.Series{Name: "rounded"}, report.Series{Name: "compensated"}
		roundedBound, compensatedBound := report.Series{Name: "bound of rounded"}, report.Series{Name: "bound of compensated"}
		put := func(s *report.Series, n int64, y float64) string {
			if y == 0 {
				return none
			}
			s.X, s.Y = append(s.X, float64(n)), append(s.Y, y)
			return fmt.Sprintf("%.1e", y)
		}
		apart := int64(0) // tokens from which on rounding the sums doubles the error
		for _, x := range list {
			addRow(&table, fmt.Sprint(x.N), put(&rounded, x.N, x.Rounded), put(&roundedBound, x.N, x.RoundedBound),
				put(&compensated, x.N, x.Compensated), put(&compensatedBound, x.N, x.CompensatedBound), digits(x.Rounded/x.Compensated))
			switch {
			case x.Rounded < 2*x.Compensated:
				apart = 0
			case apart == 0:
				apart = x.N
			}
		}
		f.Series = append(f.Series, rounded, compensated, roundedBound, compensatedBound)
		out.Tables = append(out.Tables, table)
		out.Figures = append(out.Figures, Drawing{"error", f})
		last := list[len(list)-1]
		if apart > 0 {
			out.find("From %d tokens on, rounded sums err more than twice as much as compensated ones; at %d tokens %s times as much.", apart, last.N, digits(last.Rounded/last.Compensated))
		} else {
			out.find("Up to %d tokens rounded sums err no more than twice as much as compensated ones.", last.N)
		}
		out.find("At %d tokens outputs are off by %s of a row's largest number with rounded sums, by %s with compensated ones.", last.N, digits(last.Rounded), digits(last.Compensated))
	}
	return out, nil
}
