package bench

import (
	"math"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/mechanism"
)

// Every row of the catalogue is in the zoo, and what claims a linear cost plans
// one for the shapes of the table.
func TestZooHasEveryRow(t *testing.T) {
	list, lack, err := Zoo{Heads: 1, N: 4096, D: 32, Forward: true, Training: true, Decode: true, Doubling: true}.Entries()
	if err != nil || len(lack) > 0 {
		t.Fatal(err, lack)
	}
	if len(list) != len(mechanism.Names()) {
		t.Fatalf("%d entries of %d rows", len(list), len(mechanism.Names()))
	}
	for i, e := range list {
		if name := mechanism.Names()[i]; e.Row.Name != name {
			t.Errorf("%s in place of %s", e.Row.Name, name)
		}
		if g := e.PlannedGrowth(); !(g > 1) || e.Row.Linear && g > MaxGrowth {
			t.Errorf("%s: %.3g times the operations for twice the tokens", e.Row.Name, g)
		}
		if e.Forward.FLOPs != e.Plan.FLOPs || e.Training.FLOPs != 3.5*e.Plan.FLOPs {
			t.Errorf("%s counts %g and %g operations, plans %g", e.Row.Name, e.Forward.FLOPs, e.Training.FLOPs, e.Plan.FLOPs)
		}
		if (e.Decode != nil) != e.Traits.Causal {
			t.Errorf("%s: causal %t, steps %t", e.Row.Name, e.Traits.Causal, e.Decode != nil)
		}
	}
}

func TestZooLeavesOutWhatHasNoCausalForm(t *testing.T) {
	list, lack, err := Zoo{Heads: 1, N: 64, D: 4, Causal: true, Rows: []string{"softmax", "linformer"}, Forward: true}.Entries()
	if err != nil || len(list) != 1 || len(lack) != 1 {
		t.Fatalf("%d entries, %v, %v", len(list), lack, err)
	}
	if e := list[0]; e.Row.Name != "softmax" || !e.Causal || !e.Forward.Causal || e.PlannedGrowth() != 0 || e.TimeGrowth() != 0 {
		t.Errorf("%+v", e)
	}
}

// Calls that would take longer than the limit are not made.
func TestWithin(t *testing.T) {
	z := Zoo{Heads: 2, N: 64, D: 4, Rows: []string{"softmax", "local"}, Forward: true, Training: true, Decode: true}
	for limit, want := range map[time.Duration]int{time.Nanosecond: 2, time.Hour: 6} {
		list, _, err := z.Entries()
		if err != nil {
			t.Fatal(err)
		}
		cases, err := CasesWithin(list, limit)
		if err != nil || len(cases) != want {
			t.Errorf("within %v: %d cases, want %d, %v", limit, len(cases), want, err)
		}
		for _, e := range list {
			if c := e.Forward; (c.Guess > 0) != (want == 2) || math.IsNaN(c.Guess) {
				t.Errorf("within %v: %s is foretold to take %g ms", limit, e.Row.Name, c.Guess)
			}
		}
	}
}
