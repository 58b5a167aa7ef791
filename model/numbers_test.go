package model

import (
	"fmt"
	"math"
	"reflect"
	"testing"
)

// eachNumber calls f with every floating-point number below v.
func eachNumber(v reflect.Value, name string, f func(name string, number reflect.Value)) {
	switch v.Kind() {
	case reflect.Float64:
		f(name, v)
	case reflect.Pointer:
		if !v.IsNil() {
			eachNumber(v.Elem(), name, f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			eachNumber(v.Field(i), name+"."+v.Type().Field(i).Name, f)
		}
	}
}

// Every number of a Config is either refused, or the model computes finite numbers.
func TestNumbersOfAConfigNeverGiveNaN(t *testing.T) {
	rope := func(s *RopeScaling, change func(c *Config)) Config {
		c := llama()
		c.Context, c.HeadWidth, c.RopeTheta, c.RopeFraction, c.RopeScaling = 40, 8, 100, 0.75, s
		if change != nil {
			change(&c)
		}
		return c
	}
	refused, computed := 0, 0
	for name, base := range map[string]Config{
		"plain":   rope(nil, nil),
		"windows": rope(nil, func(c *Config) { c.LayerWindows, c.LocalRopeTheta = []int{0, 3}, 50 }),
		"linear":  rope(&RopeScaling{Kind: LinearScaling, Factor: 2}, nil),
		"llama3":  rope(&RopeScaling{Kind: Llama3Scaling, Factor: 2, OriginalContext: 16, LowFrequency: 1, HighFrequency: 4}, nil),
		"yarn":    rope(&RopeScaling{Kind: YarnScaling, Factor: 2, OriginalContext: 16, BetaFast: 32, BetaSlow: 1, AttentionFactor: 1}, nil),
		"dropout": rope(nil, func(c *Config) { c.Mechanism, c.AttentionDropout, c.EntryScale, c.NormEps = "fastmax", 0.1, 2, 1e-5 }),
	} {
		if err := base.Validate(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		count := 0
		eachNumber(reflect.ValueOf(&base).Elem(), "", func(string, reflect.Value) { count++ })
		for at := range count {
			for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, -1e-300, 5e-324, 1e-300, 1e-40, 1e-30, 1e-20, 1e-7, 0.5, 1, 1e7, 1e20, 1e30, 1e40, math.MaxFloat64} {
				c, i, field := base.Clone(), 0, ""
				eachNumber(reflect.ValueOf(&c).Elem(), name, func(name string, number reflect.Value) {
					if i == at {
						field = fmt.Sprintf("%s = %v", name, x)
						number.SetFloat(x)
					}
					i++
				})
				if c.Validate() != nil {
					refused++
					continue
				}
				if !(math.Abs(x) <= math.MaxFloat64) || x < 0 {
					t.Errorf("%s is accepted", field)
				}
				computed++
				m := made(t, c)
				b := batch(c, 3, 1, 40, false)
				l, err := m.Forward(t.Context(), b)
				if err != nil || l-l != 0 {
					t.Errorf("%s: the loss is %v: %v", field, l, err)
					continue
				}
				if err := m.Backward(1); err != nil {
					t.Errorf("%s: %v", field, err)
				}
				for _, p := range m.Params().All() {
					for _, g := range p.Grad {
						if g-g != 0 {
							t.Fatalf("%s: the gradient of %s is %v", field, p.Name, g)
						}
					}
				}
			}
		}
	}
	t.Logf("%d values are refused, %d computed", refused, computed)
}
