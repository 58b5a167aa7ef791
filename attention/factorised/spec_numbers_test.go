//go:build !float64

package factorised

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/param"
)

// wholeSpec returns a Spec in which every number is reachable.
func wholeSpec() attention.Spec {
	p := func(name string) *param.Param {
		return &param.Param{Name: name, Shape: []int{2}, Data: make([]float32, 2), Grad: make([]float32, 2)}
	}
	return attention.Spec{
		Name: "all", Setting: "all", Scale: 1, Coef: []float64{1, 1, 0.5}, Tau: p("tau"),
		Window: &attention.Window{Width: 4, LogGamma: p("log_gamma")},
	}
}

// setNumber calls f with every number below v, and a name for it. f may change the number.
func setNumber(v reflect.Value, name string, f func(name string, number reflect.Value)) {
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		f(name, v)
	case reflect.Pointer:
		if !v.IsNil() {
			setNumber(v.Elem(), name, f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			setNumber(v.Index(i), name, f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() && field.Name != "Grad" {
				setNumber(v.Field(i), name+"."+field.Name, f)
			}
		}
	}
}

// New walks every number of a Spec: none may be NaN or infinite.
func TestNewRefusesNumbersOutsideTheirRange(t *testing.T) {
	if _, err := New(wholeSpec()); err != nil {
		t.Fatal(err)
	}
	cases := 0
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		count := 0
		s := wholeSpec()
		setNumber(reflect.ValueOf(&s).Elem(), "", func(string, reflect.Value) { count++ })
		for at := range count {
			i, changed := 0, ""
			s := wholeSpec()
			setNumber(reflect.ValueOf(&s).Elem(), "", func(name string, x reflect.Value) {
				if i == at {
					x.SetFloat(bad)
					changed = name
				}
				i++
			})
			cases++
			if _, err := New(s); err == nil {
				t.Errorf("%s is %v: no error", changed, bad)
			}
		}
	}
	t.Logf("%d cases", cases)
	for name, c := range map[string]struct {
		change func(s *attention.Spec)
		want   string
	}{
		"negative eps":     {func(s *attention.Spec) { s.Window, s.Eps = nil, -1 }, "Eps is -1"},
		"negative floor":   {func(s *attention.Spec) { s.Window, s.Floor = nil, -0.5 }, "Floor is -0.5"},
		"beyond a float32": {func(s *attention.Spec) { s.Coef[1] = 1e300 }, "Coef: number 1 is 1e+300"},
		"another norm":     {func(s *attention.Spec) { s.Norm = 99 }, "Norm is 99"},
		"negative norm":    {func(s *attention.Spec) { s.Norm = -1 }, "Norm is -1"},
		"empty tau":        {func(s *attention.Spec) { s.Tau.Data = nil }, "Tau: has 0 numbers"},
		"a growing decay": {func(s *attention.Spec) {
			s.Window, s.BuiltinDecay = nil, &attention.BuiltinDecay{Name: "decay", Heads: 2, Log: func(h int) float64 { return float64(h) }}
		}, "decay: head 1 is 1"},
		"an unknown decay": {func(s *attention.Spec) {
			s.Window, s.BuiltinDecay = nil, &attention.BuiltinDecay{Name: "decay", Log: func(int) float64 { return math.NaN() }}
		}, "decay: head 0 is NaN"},
	} {
		s := wholeSpec()
		c.change(&s)
		if _, err := New(s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, needs %q", name, err, c.want)
		}
	}
}
