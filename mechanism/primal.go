package mechanism

import (
	"fmt"
	"math"
	"strconv"

	"github.com/farfield-ml/farfield/attention/headwise"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
)

var primal = Row{
	Name:   "primal",
	Family: LowRank,
	Doc:    "projections of each query and of the key at its place, with a loss that makes them singular vectors: Primal-Attention",
	Source: "Chen et al. 2023, Primal-Attention, arXiv 2305.19798, eq. 6-10",
	Traits: "no attention matrix, no softmax and no values: a token reaches others through means (causal calls) or sampled values (data=dependent) alone; " +
		"linear in the tokens; a loss of its own; causal with a state of fixed size where data=independent",
	Linear: true,
	Settings: []Setting{
		{"rank", "20", "s, the columns of We and of Wr"},
		{"data", "independent", "independent: We and Wr are learned; dependent: they are made of the values of tokens, by learned ones, not causal"},
		{"tokens", "10·rank", "L of data=dependent: the tokens, evenly spaced, of which We and Wr are made, or 10·rank"},
		{"eta", "0.1", "factor of the loss, or 0: none"},
		{"square", "true", "the loss is J² of each head and sequence; false: J, whose mean the authors' program squares"},
		{"loss", "paper", "J of sums, and Λ; code: of means over the tokens, and Λ²"},
		{"trace", "made", "in J of data=dependent: of the matrices that are made; learned: of those that make them"},
		seedSetting,
	},
	Params: []Param{
		{"We", "(H, D, s)", "projections of queries; (H, L, s) where data=dependent"},
		{"Wr", "(H, D, s)", "projections of keys, likewise"},
		{"Lambda", "(H, s)", "Λ of the loss; starts between 0 and 1"},
		{"Wc", "(D, 2s)", "what outputs are of both, the same for all heads"},
		{"Wc_bias", "(D)", "added to them"},
	},
	Untrained: "We, Wr, Lambda and Wc",
	fit: func(o *Options, shapes map[string][]int) {
		if s := shapes["We"]; len(s) == 3 {
			o.Heads = s[0]
			o.setDefault("rank", strconv.Itoa(s[2]))
			if o.Set["data"] == "dependent" {
				o.setDefault("tokens", strconv.Itoa(s[1]))
			}
		}
	},
	build: headwiseBuilder(newPrimal),
}

func newPrimal(r *reader) (headwise.Function, error) {
	s := ScoresSpec{Name: r.row.Name}
	var err error
	if s.Rank, err = r.Integer("rank", 1, 1<<12); err != nil {
		return nil, err
	}
	data, err := r.Choice("data", "independent", "dependent")
	if err != nil {
		return nil, err
	}
	tokens := 10 * s.Rank
	if r.Text("tokens") != "10·rank" {
		if tokens, err = r.Integer("tokens", 1, 1<<16); err != nil {
			return nil, err
		}
	}
	if s.Weight, err = r.Positive("eta", "0"); err != nil {
		return nil, err
	}
	if s.Squared, err = r.Bool("square"); err != nil {
		return nil, err
	}
	loss, err := r.Choice("loss", "paper", "code")
	if err != nil {
		return nil, err
	}
	trace, err := r.Choice("trace", "made", "learned")
	if err != nil {
		return nil, err
	}
	key, err := r.key()
	if err != nil {
		return nil, err
	}
	if data == "dependent" {
		s.Tokens = tokens
	}
	heads, width := max(r.o.Heads, 1), r.width()
	if err := r.room("projection", heads, max(width, s.Tokens), s.Rank); err != nil {
		return nil, err
	}
	if err := r.room("Wc", width, 2*s.Rank); err != nil {
		return nil, err
	}
	s.Means, s.LearnedTrace = loss == "code", trace == "learned"
	s.Setting = fmt.Sprintf("primal rank=%d data=%s tokens=%d", s.Rank, data, s.Tokens)
	x := NewScores(s, heads, width)
	drawOrthogonal(x.We, key.Fold(1))
	drawOrthogonal(x.Wr, key.Fold(2))
	for i := range x.Lambda.Data {
		x.Lambda.Data[i] = float(float32(key.Fold(3).Float64(uint64(i))))
	}
	root := float(float32(1 / math.Sqrt(6*float64(s.Rank)))) // deviation 1/√(3·2s), for 2s inputs
	for i := range x.Wc.Data {
		x.Wc.Data[i] = root * float(float32(key.Fold(4).Normal(uint64(i))))
	}
	return x, nil
}

// drawOrthogonal sets each matrix of p [H, rows, cols] to random orthonormal rows, or
// columns if these are fewer.
func drawOrthogonal(p *param.Param, key rng.Key) {
	rows, cols := p.Shape[1], p.Shape[2]
	few, many := min(rows, cols), max(rows, cols)
	q := make([]float64, few*many)
	for h := range p.Shape[0] {
		for i := range q {
			q[i] = key.Fold(uint64(h)).Normal(uint64(i))
		}
		orthonormaliseRows(q, many)
		for r := range rows {
			for c := range cols {
				at := r*many + c
				if rows > cols {
					at = c*many + r
				}
				p.Data[(h*rows+r)*cols+c] = float(float32(q[at])) // the same in both precisions
			}
		}
	}
}
