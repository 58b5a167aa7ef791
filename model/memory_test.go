package model

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/suite"
)

// TestHeapBytesAreTheMemoryOfSessions compares HeapBytes of many sessions with the growth of the heap.
func TestHeapBytesAreTheMemoryOfSessions(t *testing.T) {
	if raced {
		t.Skip("the race detector changes the sizes of objects")
	}
	const (
		sessions, tokens = 12, 150
		tolerance        = 0.04 // rounding of small objects, and memory of the runtime
	)
	// A second worker may take memory for the first time after the measurement began.
	defer par.SetThreads(0)
	par.SetThreads(1)
	near := nearFar()
	list := map[string]Config{
		"near-far":       near,
		"near-far, wide": with(near, func(c *Config) { c.Heads, c.Order = 2, 2 }),
		"order 2":        with(near, func(c *Config) { c.Order, c.LayerWindows, c.AttentionNorm = 2, nil, false }),
		"linear":         with(near, func(c *Config) { c.Order, c.Set, c.LayerWindows = 2, nil, nil }),
		"softmax":        with(near, func(c *Config) { c.Mechanism, c.Order, c.Set, c.LayerWindows = "softmax", 0, nil, nil }),
		"mamba-2":        with(near, func(c *Config) { *c = onMixer(*c, "mamba-2"); c.Set = map[string]string{"state": "8"} }),
		"hyena":          with(near, func(c *Config) { *c = onMixer(*c, "hyena") }),
		"learned":        with(near, func(c *Config) { c.Positions = Learned }),
	}
	if !suite.IsLong() { // states of every kind are left
		delete(list, "near-far, wide")
		delete(list, "order 2")
		delete(list, "learned")
	}
	for name, c := range list {
		m := made(t, c)
		if err := compareHeap(t, m, sessions, tokens, tolerance); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// onMixer returns a configuration with a mixer that owns its projections.
func onMixer(c Config, name string) Config {
	c.Mechanism, c.Positions, c.Order, c.Set, c.LayerWindows, c.AttentionNorm = name, NoPosition, 0, nil, nil, false
	return c
}

// compareHeap returns an error if sessions of m, and clones of them, take other memory than HeapBytes
// says.
func compareHeap(t *testing.T, m *Model, sessions, tokens int, tolerance float64) error {
	g := group(t, m)
	list, clones := make([]*Session, sessions), make([]*Session, sessions)
	add := func(i int) {
		s, err := g.NewSession(1)
		if err != nil {
			t.Fatal(err)
		}
		steps := []SessionStep{{Session: s, Tokens: tokensOf(m.config, uint64(i), tokens)}}
		if g.StepTogether(steps); steps[0].Err != nil {
			t.Fatal(steps[0].Err)
		}
		list[i] = s
	}
	add(0) // with memory that stays in the group and in workers
	before, counted, cloned := check.LiveBytes(), int64(0), int64(0)
	for i := range list {
		add(i)
	}
	held := check.LiveBytes() - before + list[0].HeapBytes() // the first is garbage by now
	before = check.LiveBytes()
	for i, s := range list {
		counted += s.HeapBytes()
		clones[i] = s.Clone()
		cloned += clones[i].HeapBytes()
	}
	copied := check.LiveBytes() - before
	for _, x := range []float64{float64(held) / float64(counted), float64(copied) / float64(cloned)} {
		if x < 1-tolerance || x > 1+tolerance {
			return fmt.Errorf("%d sessions take %d bytes, %d are counted; their clones take %d, %d are counted", sessions, held, counted, copied, cloned)
		}
	}
	runtime.KeepAlive(list)
	runtime.KeepAlive(clones)
	runtime.KeepAlive(g)
	return nil
}
