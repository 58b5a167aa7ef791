package zoo

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/internal/attention/headwise"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
)

func NewPrimal(r *entry.Reader) (headwise.Function, error) {
	s := ScoresSpec{Name: r.Name}
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
	key, err := r.Key()
	if err != nil {
		return nil, err
	}
	if data == "dependent" {
		s.Tokens = tokens
	}
	heads, width := max(r.Heads, 1), r.ParamWidth()
	if err := r.Room("projection", heads, max(width, s.Tokens), s.Rank); err != nil {
		return nil, err
	}
	if err := r.Room("Wc", width, 2*s.Rank); err != nil {
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
