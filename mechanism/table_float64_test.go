//go:build float64

package mechanism

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/param"
)

// numbersOf are the names of a set's numbers.
func numbersOf(s *param.Set) (list []string) {
	for _, p := range s.All() {
		list = append(list, p.Name)
	}
	return list
}

// namesOf are those that a row lists, sorted.
func namesOf(params []Param) (list []string) {
	for _, p := range params {
		list = append(list, p.Name)
	}
	slices.Sort(list)
	return list
}

func TestEveryRowIsComplete(t *testing.T) {
	for _, name := range Names() {
		row, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if row.Doc == "" || row.Source == "" || row.Traits == "" {
			t.Errorf("%s: a text is missing", name)
		}
		// Some numbers are there with a setting alone.
		var params, constants []string
		for _, of := range [][2]string{{}, {"tau", "1"}, {"window", "1"}, {"map", "hedgehog"}, {"conv", "3"}, {"rpe", "true"}, {"noise", "normal"}, {"sample", "stored"}, {"support", "lsh"}, {"tilt", "true"}} {
			o := Options{Heads: 3, Width: 4, Length: 64}
			if slices.ContainsFunc(row.Settings, func(s Setting) bool { return s.Name == of[0] }) {
				o.Set = map[string]string{of[0]: of[1]}
			}
			m, err := New(name, o)
			if err != nil {
				t.Fatalf("%s: %v is refused: %v", name, of, err)
			}
			params, constants = append(params, numbersOf(m.Params())...), append(constants, numbersOf(m.Constants())...)
		}
		for _, x := range []struct {
			what        string
			have, lists []string
		}{
			{"parameters", params, namesOf(row.Params)},
			{"constants", constants, namesOf(row.Constants)},
		} {
			slices.Sort(x.have)
			if x.have = slices.Compact(x.have); !slices.Equal(x.have, x.lists) {
				t.Errorf("%s: %s %q, its row says %q", name, x.what, x.have, x.lists)
			}
		}
		// The default that the row states is what an empty Set means.
		for _, s := range row.Settings {
			a := setting(t, name, Options{Width: 4})
			of := map[string]string{s.Name: s.Default}
			if s.Name == "join" || s.Name == gammaSetting.Name && s == gammaSetting {
				of["window"] = "3"
				a = setting(t, name, Options{Width: 4, Set: map[string]string{"window": "3"}})
			}
			b := setting(t, name, Options{Width: 4, Set: of})
			if a != b {
				t.Errorf("%s: %q by default, %q with %s=%s", name, a, b, s.Name, s.Default)
			}
		}
	}
}

func setting(t *testing.T, name string, o Options) string {
	t.Helper()
	m, err := New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return m.Setting()
}

func TestSettingsTellMechanismsApart(t *testing.T) {
	all := map[string]string{}
	for _, c := range []struct {
		name string
		o    Options
	}{
		{"softmax", Options{}},
		{"softmax", Options{Set: map[string]string{"scale": "1"}}},
		{"fastmax", Options{}},
		{"fastmax", Options{Order: 1}},
		{"fastmax", Options{Set: map[string]string{"scale": "0.5"}}},
		{"fastmax", Options{Set: map[string]string{"scale": "1/sqrt(D)"}}},
		{"fastmax", Options{Set: map[string]string{"bounded": "true"}}},
		{"taylorshift", Options{}},
		{"taylorshift", Options{Order: 4}},
		{"linear", Options{}},
		{"linear", Options{Set: map[string]string{"eps": "0"}}},
		{"linear", Options{Set: map[string]string{"map": "relu"}}},
		{"linear", Options{Set: map[string]string{"map": "squared-relu"}}},
		{"based", Options{}},
		{"based", Options{Set: map[string]string{"eps": "1e-12"}}},
		{"power", Options{}},
		{"power", Options{Order: 4}},
		{"power", Options{Set: map[string]string{"scale": "1"}}},
		{"power", Options{Set: map[string]string{"eps": "1"}}},
		{"sata", Options{}},
		{"retention", Options{}},
		{"retention", Options{Set: map[string]string{"gamma": "0.5"}}},
		{"retention", Options{Set: map[string]string{"scale": "1"}}},
		{"local", Options{}},
		{"local", Options{Set: map[string]string{"window": "3"}}},
		{"local", Options{Set: map[string]string{"span": "3"}}},
		{"local", Options{Set: map[string]string{"form": "block"}}},
		{"local", Options{Set: map[string]string{"form": "block", "exact": "true"}}},
		{"longformer", Options{}},
		{"longformer", Options{Set: map[string]string{"global": "none"}}},
		{"longnet", Options{}},
		{"longnet", Options{Set: map[string]string{"form": "code"}}},
		{"sparse-strided", Options{}},
		{"sparse-fixed", Options{}},
		{"adaptive-span", Options{}},
		{"transformer-xl", Options{Width: 4}},
		{"adaptive-span", Options{Set: map[string]string{"limit": "7"}}},
		{"sata", Options{Order: 4}},
		{"polynomial", Options{}},
		{"polynomial", Options{Set: map[string]string{"coef": "1,1,1/6"}}},
		{"polynomial", Options{Set: map[string]string{"norm": "unit"}}},
		{"polynomial", Options{Set: map[string]string{"scale": "1"}}},
		{"polynomial", Options{Set: map[string]string{"eps": "1"}}},
		{"polynomial", Options{Set: map[string]string{"output_norm": "true"}}},
		{"taylorshift", Options{Set: map[string]string{"output_norm": "true"}}},
		{"multipole", Options{}},
		{"multipole", Options{Order: 1}},
		{"multipole", Options{Set: map[string]string{"cells": "8"}}},
		{"multipole", Options{Set: map[string]string{"block": "8"}}},
		{"multipole", Options{Set: map[string]string{"window": "8"}}},
		{"multipole", Options{Set: map[string]string{"sinks": "8"}}},
		{"multipole", Options{Set: map[string]string{"ends": "8"}}},
		{"multipole", Options{Set: map[string]string{"adapt": "1"}}},
		{"multipole", Options{Set: map[string]string{"centres": "input"}}},
		{"multipole", Options{Set: map[string]string{"centres": "input", "tol": "0.2"}}},
		{"multipole", Options{Set: map[string]string{"centres": "input", "size": "8"}}},
		{"multipole", Options{Set: map[string]string{"centres": "input", "span": "8"}}},
		{"multipole", Options{Set: map[string]string{"centres": "input", "least": "8"}}},
		{"multipole", Options{Set: map[string]string{"scale": "1"}}},
		{"fastmax", Options{Set: map[string]string{"window": "4"}}},
		{"fastmax", Options{Set: map[string]string{"window": "5"}}},
		{"fastmax", Options{Set: map[string]string{"window": "5", "join": "separate"}}},
	} {
		s := setting(t, c.name, c.o)
		if other, taken := all[s]; taken {
			t.Errorf("%s %+v and %s have the setting %q", c.name, c.o, other, s)
		}
		all[s] = c.name
	}
}
