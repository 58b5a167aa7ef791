package mechanism

import (
	"slices"
	"testing"
)

// Learned parameters that differ with the seed are random numbers before training.
func TestRowsOfRandomParametersSaySo(t *testing.T) {
	for _, row := range table {
		o := Options{Heads: 2, Width: 4, Length: 8}
		a, err := New(row.Name, o)
		if err != nil {
			t.Fatal(err)
		}
		o.Seed = 1
		b, err := New(row.Name, o)
		if err != nil {
			t.Fatal(err)
		}
		drawn := ""
		for i, p := range a.Params().All() {
			if !slices.Equal(p.Data, b.Params().All()[i].Data) {
				drawn = p.Name
			}
		}
		switch {
		case drawn != "" && row.Untrained == "":
			t.Errorf("%s: %s is drawn, and Untrained is empty", row.Name, drawn)
		case row.Untrained != "" && a.Params().Size() == 0 && len(a.Constants().All()) == 0:
			t.Errorf("%s: has no parameters, and Untrained is %q", row.Name, row.Untrained)
		}
	}
}
