package problem

import (
	"fmt"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/rng"
)

// readDropout reads the flags of dropout, and its masks if the file has them.
func (p *Problem) readDropout(c *Request, r *arrayReader) error {
	if c.Dropout == "" {
		if c.Rate != nil {
			return fmt.Errorf("--rate: needs --dropout")
		}
		return nil
	}
	kind, err := attention.ParseDropKind(c.Dropout)
	if err != nil {
		return fmt.Errorf("--dropout: %w", err)
	}
	d := &attention.Drop{Kind: kind, Key: rng.New(c.Seed)}
	q, k := &p.Call.Q, &p.Call.K
	queries, keys := []int{q.B, q.H, q.N}, []int{k.B, k.H, k.N}
	var names []string
	var masks []*[]bool
	var per []int // of a token
	switch kind {
	case attention.TokenDrop:
		names, masks, per = []string{"mask_qtok", "mask_ktok"}, []*[]bool{&d.QTok, &d.KTok}, []int{1}
	case attention.ElementDrop:
		names, masks, per = []string{"mask_q1", "mask_k1"}, []*[]bool{&d.Q1, &d.K1}, []int{q.D}
	case attention.ProductDrop:
		names, masks, per = []string{"mask_q2", "mask_k2"}, []*[]bool{&d.Q2, &d.K2}, []int{q.D, q.D}
	}
	for i, shape := range [][]int{queries, keys} {
		if !r.has(names[i]) {
			continue
		}
		if *masks[i], err = r.dropMask(names[i], append(shape, per...), kind == attention.TokenDrop); err != nil {
			return err
		}
		p.furtherNames = append(p.furtherNames, names[i])
	}
	switch {
	case c.Rate != nil:
		d.Rate = *c.Rate
	case r.has("rate"):
		shape, err := r.shape("rate", floats, "f4 or f8")
		if err != nil {
			return err
		}
		if n, err := array.CountElements(shape); err != nil || n != 1 {
			return fmt.Errorf("rate: has %d elements, needs 1", n)
		}
		a, err := r.ReadArray("rate")
		if err != nil {
			return err
		}
		x, err := a.Float64()
		if err != nil {
			return err
		}
		d.Rate = x[0]
		p.furtherNames = append(p.furtherNames, "rate")
	default:
		return fmt.Errorf("--dropout: needs --rate, or an array rate")
	}
	if !(d.Rate >= 0 && d.Rate < 1) {
		return fmt.Errorf("dropout: rate is %v, needs 0 ≤ rate < 1", d.Rate)
	}
	p.Call.Drop = d
	return nil
}

// dropMask reads a mask of the given shape. Leading dimensions of 1 may be missing, and
// the last dimension if open is set.
func (r *arrayReader) dropMask(name string, shape []int, open bool) ([]bool, error) {
	got, err := r.shape(name, bools, "u1 or bool")
	if err != nil {
		return nil, err
	}
	want := slices.Clone(shape)
	if open && (len(got) == 0 || got[len(got)-1] != 1) {
		want = want[:len(want)-1]
	}
	for len(want) > len(got) && want[0] == 1 {
		want = want[1:]
	}
	if !slices.Equal(got, want) {
		return nil, fmt.Errorf("%s: shape is %v, needs %v", name, got, shape)
	}
	return r.flags(name)
}
