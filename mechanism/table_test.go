package mechanism

import (
	"math"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
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
		{"performer", Options{Width: 4, Set: set("features", "0")}, "performer: setting features=0: needs a whole number from 1 to 16384"},
		{"performer", Options{Width: 4, Set: set("feature_eps", "1e-4")}, "performer: setting feature_eps=1e-4: kernel=softmax has none, since it would need a maximum over all keys"},
		{"retention", Options{Set: set("gamma", "0.5,2")}, "retention: setting gamma=0.5,2: needs numbers above 0 and at most 1, or 1-2^(-5-h)"},
		{"based", Options{Order: 2}, "based: order 2: it has no order"},
		{"local", Options{Set: set("window", "7", "span", "4")}, "local: settings window=7 form=window and span=4: needs either a window or a span"},
		{"local", Options{Set: set("form", "block", "span", "4")}, "local: settings window=128 form=block and span=4: needs either a window or a span"},
		{"local", Options{Set: set("window", "0")}, "local: setting window=0: needs a whole number from 1 to 1073741824"},
		{"local", Options{Set: set("cap", "65")}, "local: setting cap=65: needs a number from 0.001 to 64, or none"},
		{"softmax", Options{Set: set("cap", "0")}, "softmax: setting cap=0: needs a number from 1e-30 to 1e30, or none"},
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

var _ attention.FeatureMap = eluPlusOne{}
