package mechanism

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism/internal/entry"
	"github.com/farfield-ml/farfield/param"
)

func TestUnknownNamesGetTheNearest(t *testing.T) {
	for name, want := range map[string]string{
		"fastmx":       `mechanism "fastmx": unknown; nearest: fastmax`,
		"softmx":       `mechanism "softmx": unknown; nearest: softmax`,
		"taylor-shift": `mechanism "taylor-shift": unknown; nearest: taylorshift`,
		"Linear":       `mechanism "Linear": unknown; nearest: linear`,
		"":             `mechanism "": unknown; there are: softmax, fastmax, `,
		"transformer":  `mechanism "transformer": unknown; nearest: transformer-xl`,
		"lunar":        `mechanism "lunar": unknown; nearest: luna`,
		"banana":       `mechanism "banana": unknown; there are: softmax, fastmax, `,
	} {
		if _, err := Lookup(name); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Lookup(%q): %v, want %s", name, err, want)
		}
	}
}

func TestEditDistanceCountsLetters(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}} {
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	set := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"softmax", Options{Order: 2}, "softmax: order 2: it has no order"},
		{"linear", Options{Order: 1}, "linear: order 1: it has no order"},
		{"fastmax", Options{Order: -1}, "fastmax: order -1: needs to be 1 to 33"},
		{"fastmax", Options{Order: 34}, "fastmax: order 34: needs to be 1 to 33"},
		{"taylorshift", Options{Order: 3}, "taylorshift: order 3: needs an even order, whose weights are positive for every τ"},
		{"softmax", Options{Heads: -1}, "softmax: -1 heads of width 0 for 0 tokens: not possible"},
		{"taylorshift", Options{Heads: 1 << 40, Width: 2}, "taylorshift: 1099511627776 heads of width 2, at most 16777216 of each are possible"},
		{"clustered", Options{Width: math.MaxInt}, "clustered: 0 heads of width 9223372036854775807, at most 16777216 of each are possible"},
		{"nystrom", Options{Heads: 1 << 24, Set: set("conv", "33")}, "nystrom: conv of shape [16777216 33] has 553648128 elements, at most 16777216 are possible"},
		{"softmax", Options{Set: set("bounded", "true")}, "softmax: setting bounded=true: unknown; allowed: scale, cap"},
		{"fastmax", Options{Set: set("scal", "2")}, "fastmax: setting scal=2: unknown; allowed: scale, bounded, tau, window, join, gamma"},
		{"fastmax", Options{Set: set("scale", "banana")}, "fastmax: setting scale=banana: needs a number from 1e-30 to 1e30, or 1/sqrt(D)"},
		{"fastmax", Options{Set: set("scale", "0")}, "fastmax: setting scale=0: needs a number from 1e-30 to 1e30, or 1/sqrt(D)"},
		{"softmax", Options{Set: set("scale", "NaN")}, "softmax: setting scale=NaN: needs a number from 1e-30 to 1e30, or 1/sqrt(D)"},
		{"softmax", Options{Set: set("scale", "Inf")}, "softmax: setting scale=Inf: needs a number from 1e-30 to 1e30, or 1/sqrt(D)"},
		{"fastmax", Options{Set: set("bounded", "yes")}, "fastmax: setting bounded=yes: needs true or false"},
		{"taylorshift", Options{Set: set("tau", "sqrt(D)")}, "taylorshift: setting tau=sqrt(D): the width D is not known"},
		{"taylorshift", Options{Set: set("tau", "-1")}, "taylorshift: setting tau=-1: needs a number from 1e-30 to 1e30, or sqrt(D)"},
		{"polynomial", Options{Set: set("norm", "layer")}, "polynomial: setting norm=layer: needs one of none, standard, unit, bounded, max, token-centred, channel-centred, global-centred, max-squared"},
		{"polynomial", Options{Set: set("coef", "1")}, "polynomial: setting coef=1: needs 2 to 34 numbers or fractions, none beyond 1e30, the last not below 1e-30"},
		{"polynomial", Options{Set: set("coef", "1,0")}, "polynomial: setting coef=1,0: needs 2 to 34 numbers or fractions, none beyond 1e30, the last not below 1e-30"},
		{"polynomial", Options{Set: set("coef", "1,1/0")}, "polynomial: setting coef=1,1/0: needs 2 to 34 numbers or fractions, none beyond 1e30, the last not below 1e-30"},
		{"polynomial", Options{Set: set("coef", "1,Inf")}, "polynomial: setting coef=1,Inf: needs 2 to 34 numbers or fractions, none beyond 1e30, the last not below 1e-30"},
		{"polynomial", Options{Set: set("coef", "1,1e999999999")}, "polynomial: setting coef=1,1e999999999: needs 2 to 34 numbers or fractions, none beyond 1e30, the last not below 1e-30"},
		{"polynomial", Options{Set: set("coef", "1,,1")}, "polynomial: setting coef=1,,1: needs 2 to 34 numbers or fractions, none beyond 1e30, the last not below 1e-30"},
		{"polynomial", Options{Set: set("tau", "sqrt(D)")}, "polynomial: setting tau=sqrt(D): the width D is not known"},
		{"power", Options{Order: 3}, "power: order 3: needs an even order, whose weights are never negative"},
		{"linear", Options{Set: set("map", "hedgehog")}, "linear: setting map=hedgehog: the width D is not known"},
		{"performer", Options{}, "performer: the width D is not known"},
		{"performer", Options{Width: 4, Set: set("features", "0")}, "performer: setting features=0: needs a whole number from 1 to 16384, or D·ln(D)"},
		{"performer", Options{Width: 4, Set: set("feature_eps", "1e-4")}, "performer: setting feature_eps=1e-4: kernel=softmax has none, since it would need a maximum over all keys"},
		{"retention", Options{Set: set("gamma", "0.5,2")}, "retention: setting gamma=0.5,2: needs numbers above 0 and at most 1, or 1-2^(-5-h)"},
		{"based", Options{Order: 2}, "based: order 2: it has no order"},
		{"local", Options{Set: set("window", "7", "span", "4")}, "local: settings window=7 form=window and span=4: needs either a window or a span"},
		{"local", Options{Set: set("form", "block", "span", "4")}, "local: settings window=128 form=block and span=4: needs either a window or a span"},
		{"local", Options{Set: set("window", "0")}, "local: setting window=0: needs a whole number from 1 to 1073741824"},
		{"local", Options{Set: set("cap", "65")}, "local: setting cap=65: needs a number from 0.001 to 64, or none"},
		{"softmax", Options{Set: set("cap", "0")}, "softmax: setting cap=0: needs a number from 0.001 to 64, or none"},
		{"longformer", Options{Set: set("global", "0,-1")}, "longformer: setting global=0,-1: needs whole numbers from 0 to 1073741824 with commas between them"},
		{"longnet", Options{Set: set("ratios", "1,2")}, "longnet: setting ratios=1,2: has 2 numbers, segments has 5"},
		{"sparse-fixed", Options{Set: map[string]string{"stride": "4", "c": "5"}}, "sparse-fixed: setting c=5: needs no more than stride=4"},
		{"transformer-xl", Options{}, "transformer-xl: the width D is not known"},
		{"adaptive-span", Options{Set: set("ramp", "0")}, "adaptive-span: setting ramp=0: needs a number from 1e-30 to 1e30"},
		{"linear", Options{Set: set("map", "gelu")}, "linear: setting map=gelu: needs elu+1, relu, squared-relu or hedgehog"},
		{"fastmax", Options{Set: set("window", "-1")}, "fastmax: setting window=-1: needs a number of tokens from 0 to 1048576"},
		{"fastmax", Options{Set: set("window", "4", "join", "both")}, "fastmax: setting join=both: needs one of denominator, separate"},
		{"fastmax", Options{Set: set("window", "4", "gamma", "0")}, "fastmax: setting gamma=0: needs a number from 1e-30 to 1e30"},
		{"fastmax", Options{Set: set("gamma", "2")}, "fastmax: setting gamma=2: needs a window, and the setting window is 0"},
		{"taylorshift", Options{Set: set("window", "4", "output_norm", "true")}, "taylorshift: window: not defined with output_norm"},
		{"polynomial", Options{Set: set("window", "4", "norm", "max")}, "polynomial: window: norm max is taken over all tokens, a window needs causal calls"},
		{"softmax", Options{Set: set("window", "4")}, "softmax: setting window=4: unknown; allowed: scale, cap"},
		{"multipole", Options{Order: 3}, "multipole: order 3: needs to be 0 to 2"},
		{"multipole", Options{Order: -1}, "multipole: order -1: needs to be 0 to 2"},
		{"multipole", Options{Set: set("order", "0")}, "multipole: setting order=0: the degree is no setting, but Options.Order or --order 0"},
		{"multipole", Options{Set: set("centres", "keys")}, "multipole: setting centres=keys: needs one of codebook, input"},
		{"multipole", Options{Set: set("tol", "0.2")}, "multipole: setting tol=0.2: needs centres=input"},
		{"multipole", Options{Set: set("centres", "input", "cells", "8")}, "multipole: setting cells=8: needs centres=codebook"},
		{"multipole", Options{Set: set("centres", "input", "tol", "-1")}, "multipole: setting tol=-1: needs a number from 0 to 1"},
		{"multipole", Options{KeyHeads: -2}, "multipole: -2 key heads, 0 to 16777216 are possible"},
		{"multipole", Options{Set: set("block", "0")}, "multipole: setting block=0: needs a whole number from 1 to 1073741824"},
		{"multipole", Options{Heads: 1 << 10, Set: set("cells", "65536")}, "multipole: codebook of shape [1024 65536 64] has 4294967296 elements, at most 16777216 are possible"},
		{"linear", Options{Set: set("eps", "-1")}, "linear: setting eps=-1: needs a number from 1e-30 to 1e30, or 0"},
	} {
		_, err := New(c.name, c.o)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s %+v: %v, want %s", c.name, c.o, err, c.want)
		}
	}
}

func TestTraitsSayWhichKernelsArePositive(t *testing.T) {
	for _, c := range []struct {
		name    string
		order   int
		bounded string
		scale   string
		want    bool
	}{
		{"softmax", 0, "", "", true},
		{"linear", 0, "", "", true},
		{"taylorshift", 4, "", "", true},
		{"based", 0, "", "", true},
		{"power", 0, "", "", true},
		{"sata", 0, "", "", false},
		{"sata", 4, "", "", true},
		{"retention", 0, "", "", false},
		{"fastmax", 1, "false", "1", false},
		{"fastmax", 2, "false", "1", true},
		{"fastmax", 3, "false", "1", false},
		{"fastmax", 4, "false", "1", true},
		{"fastmax", 1, "true", "1", true},
		{"fastmax", 1, "true", "1/sqrt(D)", true},
		{"fastmax", 1, "true", "1.01", false},
		{"fastmax", 3, "true", "1.59", true}, // T_3 has its zero at -1.5961
		{"fastmax", 3, "true", "1.60", false},
	} {
		o := Options{Order: c.order}
		if c.bounded != "" {
			o.Set = map[string]string{"bounded": c.bounded, "scale": c.scale}
		}
		m, err := New(c.name, o)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Traits().Positive; got != c.want {
			t.Errorf("%s order %d bounded=%s scale=%s: positive is %t", c.name, c.order, c.bounded, c.scale, got)
		}
	}
}

var _ attention.FeatureMap = entry.EluPlusOne{}

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

func TestTemperaturesStartWhereTheyAreSet(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want []float
	}{
		{Options{}, []float{1}},
		{Options{Heads: 2}, []float{1, 1}},
		{Options{Heads: 3, Set: map[string]string{"tau": "2.5"}}, []float{2.5, 2.5, 2.5}},
		{Options{Heads: 1, Width: 16, Set: map[string]string{"tau": "sqrt(D)"}}, []float{4}},
	} {
		m, err := New("taylorshift", c.o)
		if err != nil {
			t.Fatal(err)
		}
		tau, err := m.Params().Get("tau")
		if err != nil {
			t.Fatal(err)
		}
		if len(tau.Data) != len(c.want) || len(tau.Grad) != len(c.want) || tau.Shape[0] != len(c.want) {
			t.Fatalf("%+v: tau has %d elements, want %d", c.o, len(tau.Data), len(c.want))
		}
		for h, x := range tau.Data {
			if x != c.want[h] {
				t.Errorf("%+v: tau of head %d is %v, want %v", c.o, h, x, c.want[h])
			}
		}
	}
}
