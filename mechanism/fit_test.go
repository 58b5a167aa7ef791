package mechanism

import (
	"slices"
	"testing"
)

// Shapes of parameters and constants determine the settings that made them.
func TestFitReadsShapes(t *testing.T) {
	for _, c := range []struct {
		name string
		set  map[string]string
	}{
		{"nystrom", map[string]string{"conv": "5"}},
		{"luna", map[string]string{"length": "7"}},
		{"informer", map[string]string{"sample": "stored"}},
		{"eva", map[string]string{"rpe": "true", "window": "6", "overlap": "2"}},
		{"eva", map[string]string{"noise": "normal", "landmarks": "3"}},
		{"eva", map[string]string{"rpe": "true", "window": "6", "chunk": "3"}},
		{"clustered", map[string]string{"clusters": "7", "bits": "5"}},
		{"improved-clustered", map[string]string{"clusters": "3", "bits": "64"}},
		{"reformer", map[string]string{"rounds": "3", "buckets": "10"}},
		{"scatterbrain", map[string]string{"features": "7"}},
		{"scatterbrain", map[string]string{"features": "3", "support": "lsh"}},
		{"linformer", map[string]string{"rank": "4"}},
		{"fourier", map[string]string{"channels": "true"}},
		{"multipole", map[string]string{"cells": "6"}},
		{"multipole", map[string]string{"cells": "6", "tilt": "true"}},
	} {
		made, err := New(c.name, Options{Heads: 3, Width: 4, Length: 9, Set: c.set})
		if err != nil {
			t.Fatal(err)
		}
		shapes := map[string][]int{}
		for _, p := range slices.Concat(made.Params().All(), made.Constants().All()) {
			shapes[p.Name] = p.Shape
		}
		row, err := Lookup(c.name)
		if err != nil {
			t.Fatal(err)
		}
		fitted, err := New(c.name, row.FitOptions(Options{Heads: 8, Width: 4, Length: 20}, shapes))
		if err != nil {
			t.Fatalf("%s %v: %v", c.name, c.set, err)
		}
		for _, p := range slices.Concat(fitted.Params().All(), fitted.Constants().All()) {
			if !slices.Equal(p.Shape, shapes[p.Name]) {
				t.Errorf("%s %v: %s is %v, the array %v", c.name, c.set, p.Name, p.Shape, shapes[p.Name])
			}
		}
	}
}
