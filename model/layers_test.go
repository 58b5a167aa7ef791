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
	attention.Mechanism[float32]
	params param.Set[float32]
}

func newWeighted(of attention.Mechanism[float32], by float32) *weighted {
	w := &weighted{Mechanism: of}
	w.params.AddPrefixed("", of.Params())
	w.params.New("factor", false, 1).Data[0] = by
	return w
}

func (w *weighted) Params() *param.Set[float32] { return &w.params }

func (w *weighted) Forward(out tensor.Heads[float32], c *attention.Call[float32], keep *attention.Saved[float32]) error {
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

func names(s *param.Set[float32]) (list []string) {
	for _, p := range s.All() {
		list = append(list, p.Name)
	}
	return list
}

// Files describe the mechanism of the configuration alone.
func TestSaveRefusesMechanismsThatNoFileDescribes(t *testing.T) {
	for _, mechanism := range []string{"softmax", "taylorshift"} {
		m := made[float32](t, tiny(Decoder, mechanism))
		before := names(m.Params())
		shared := m.Share()
		restore := m.WrapMechanisms(func(_ string, of attention.Mechanism[float32]) attention.Mechanism[float32] {
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
		for _, params := range []*param.Set[float32]{m.Params(), shared.Params()} {
			if got, want := names(params), slices.Concat(before, []string{"layers.0.attn.factor", "layers.1.attn.factor"}); !slices.Equal(got, want) {
				t.Errorf("%s: weights are %q, need to be %q", mechanism, got, want)
			}
		}
		// Those of a mechanism that no layer has any more are gone.
		restoreOther := m.WrapMechanisms(func(_ string, of attention.Mechanism[float32]) attention.Mechanism[float32] {
			w := newWeighted(of.(*weighted).Mechanism, 3)
			w.params = param.Set[float32]{}
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
		defer m.Watch(func(string, attention.Mechanism[float32], *attention.Call[float32]) error { return nil })()
		if err := m.Save(dir); err != nil {
			t.Errorf("%s: a model that is watched: %v", mechanism, err)
		}
		again, err := loadModel[float32](dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := batch(m.Config(), 2, 2, 5, false)
		if !slices.Equal(logits(t, again, b), logits(t, m, b)) {
			t.Errorf("%s: logits differ after Load", mechanism)
		}
	}
}
