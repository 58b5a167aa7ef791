package factorised_test

import (
	"errors"
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/factorised"
	"github.com/farfield-ml/farfield/internal/fault"
)

// A state without a Setting is restored by a mechanism of equal fields alone.
func TestStatesWithoutSettingKnowTheirFields(t *testing.T) {
	of := func(change func(s *attention.Spec)) attention.Mechanism {
		s := attention.Spec{Name: "mine", Scale: 1, Coef: []float64{1, 1, 0.5}}
		change(&s)
		m, err := factorised.New(s)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	same := func(*attention.Spec) {}
	state, err := of(same).NewState(attention.Shape{B: 1, H: 1, Hkv: 1, D: 4, Dv: 4, Causal: true})
	if err != nil {
		t.Fatal(err)
	}
	data, err := state.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := of(same).RestoreState(data); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(s *attention.Spec){
		"Scale":        func(s *attention.Spec) { s.Scale = 2 },
		"Coef":         func(s *attention.Spec) { s.Coef = []float64{1, 2, 0.5} },
		"Norm":         func(s *attention.Spec) { s.Norm = attention.Unit },
		"Eps":          func(s *attention.Spec) { s.Eps = 1 },
		"Floor":        func(s *attention.Spec) { s.Floor = 1 },
		"Unnormalized": func(s *attention.Spec) { s.Unnormalized = true },
		"BuiltinDecay": func(s *attention.Spec) {
			s.BuiltinDecay = &attention.BuiltinDecay{Name: "half", Log: func(int) float64 { return -math.Ln2 }}
		},
		"OutputNorm": func(s *attention.Spec) { s.OutputNorm = true },
	} {
		if _, err := of(change).RestoreState(data); !errors.Is(err, fault.ErrMismatch) {
			t.Errorf("another %s: %v, needs fault.ErrMismatch", name, err)
		}
	}
}

// The exponential is positive by itself, and a Spec without a name has one in errors.
func TestExpIsPositive(t *testing.T) {
	m, err := factorised.New(attention.Spec{Exp: true})
	if err != nil || !m.Traits().Positive {
		t.Errorf("%v, positive: %t", err, err == nil && m.Traits().Positive)
	}
	if _, err := factorised.New(attention.Spec{}); err == nil || err.Error() != "spec: needs one of Exp, Similarity and Coef" {
		t.Error(err)
	}
}
