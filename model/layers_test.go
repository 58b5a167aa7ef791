package model

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// weighted multiplies the outputs of a mechanism by a learned number.
type weighted struct {
	attention.Mechanism
	params param.Set
}

func (w *weighted) Params() *param.Set { return &w.params }

func (w *weighted) Forward(out tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	if err := w.Mechanism.Forward(out, c, keep); err != nil {
		return err
	}
	factor, _ := w.params.Get("factor")
	for i := range out.B * out.H {
		for j := range out.N {
			row := out.Head(i/out.H, i%out.H).Row(j)
			for k := range row {
				row[k] *= factor.Data[0]
			}
		}
	}
	return nil
}

func names(s *param.Set) (list []string) {
	for _, p := range s.All() {
		list = append(list, p.Name)
	}
	return list
}
