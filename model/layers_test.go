package model

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

func newWeighted(of attention.Mechanism, by float) *weighted {
	w := &weighted{Mechanism: of}
	w.params.AddPrefixed("", of.Params())
	w.params.New("factor", false, 1).Data[0] = by
	return w
}

// Files describe the mechanism of the configuration alone.
func TestSaveRefusesMechanismsThatNoFileDescribes(t *testing.T) {
	for _, mechanism := range []string{"softmax", "taylorshift"} {
		m := made(t, tiny(Decoder, mechanism))
		before := names(m.Params())
		shared := m.Share()
		restore := WrapMechanisms(m, func(_ string, of attention.Mechanism) attention.Mechanism {
			return newWeighted(of, 2)
		})
		dir := filepath.Join(t.TempDir(), "m")
		err := m.Save(dir)
		if err == nil || !strings.Contains(err.Error(), "layers.0.attn: mechanism "+mechanism) {
			t.Errorf("%s: error is %v, needs the layer and the mechanism", mechanism, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: a folder is made for a model that is not saved", mechanism)
		}
		for _, params := range []*param.Set{m.Params(), shared.Params()} {
			if got, want := names(params), slices.Concat(before, []string{"layers.0.attn.factor", "layers.1.attn.factor"}); !slices.Equal(got, want) {
				t.Errorf("%s: weights are %q, need to be %q", mechanism, got, want)
			}
		}
		// Those of a mechanism that no layer has any more are gone.
		restoreOther := WrapMechanisms(m, func(_ string, of attention.Mechanism) attention.Mechanism {
			w := newWeighted(of.(*weighted).Mechanism, 3)
			w.params = param.Set{}
			w.params.New("factor", false, 1)
			return w
		})
		want := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return strings.HasSuffix(name, ".tau") })
		if got := names(m.Params()); !slices.Equal(got, slices.Concat(want, []string{"layers.0.attn.factor", "layers.1.attn.factor"})) {
			t.Errorf("%s: weights are %q", mechanism, got)
		}
		restoreOther()
		restore()
		if got := names(m.Params()); !slices.Equal(got, before) {
			t.Errorf("%s: weights are %q after restore, need to be %q", mechanism, got, before)
		}
		defer Watch(m, func(string, attention.Mechanism, *attention.Call) error { return nil })()
		if err := m.Save(dir); err != nil {
			t.Errorf("%s: a model that is watched: %v", mechanism, err)
		}
		again, err := Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		b := batch(m.Config(), 2, 2, 5, false)
		if !slices.Equal(logits(t, again, b), logits(t, m, b)) {
			t.Errorf("%s: logits differ after Load", mechanism)
		}
	}
}
