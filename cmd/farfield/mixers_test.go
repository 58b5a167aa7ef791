package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/train"
)

// Mixers train and write by name, and a run says what it is.
func TestMixersTrainByName(t *testing.T) {
	t.Parallel()
	for _, name := range nn.MixerNames() {
		row, _ := nn.LookupMixer(name)
		dir := filepath.Join(t.TempDir(), "run")
		works(t, littleRun(textFile(t), dir, "--mechanism", name)...)
		c, err := train.RunConfig(dir)
		if err != nil {
			t.Fatal(err)
		}
		if c.Model.Mechanism != name || c.Model.Positions == "rope" != row.Rope {
			t.Errorf("the model is %+v", c.Model)
		}
		if out := works(t, "inspect", dir); !strings.Contains(out, name+", which owns its projections") || !strings.Contains(out, "of state") {
			t.Errorf("inspect says of %s:\n%s", name, out)
		}
		works(t, "generate", "--model", dir, "--prompt", "a", "--tokens", "5")
		if out := works(t, "train", "--mechanism", name, "--help"); !strings.Contains(out, row.Source) {
			t.Errorf("the help of %s does not name its source", name)
		}
	}
	if out := works(t, "train", "--help"); !strings.Contains(out, "  mamba-2 ") {
		t.Error("the help does not list mamba-2")
	}
	if out := works(t, "inspect", "mechanisms"); !strings.Contains(out, "mamba-2") {
		t.Error("inspect mechanisms does not list mamba-2")
	}
}

// Verbs that need a function of q, k and v refuse a mixer with the reason. A model
// refuses fields that a mixer does not support.
func TestMixersAreRefused(t *testing.T) {
	t.Parallel()
	const why = "mechanism mamba-2: owns its projections: it is a layer from x to y, not a function of q, k and v; farfield train --mechanism mamba-2 takes it"
	refuses(t, why, "attend", "--mechanism", "mamba-2", "in.npz", "out.npz")
	refuses(t, why, "plan", "--mechanism", "mamba-2")
	refuses(t, why, "bench", "attention", "--mechanism", "mamba-2")
	data, dir := textFile(t), filepath.Join(t.TempDir(), "run")
	refuses(t, "positions: rope, but mamba-2 owns its projections", littleRun(data, dir, "--mechanism", "mamba-2", "--positions", "rope")...)
	refuses(t, "kv_heads: 1, but mamba-2 owns its projections", littleRun(data, dir, "--mechanism", "mamba-2", "--kv-heads", "1")...)
	refuses(t, "decay: fixed, which mamba-2 with these settings does not take", littleRun(data, dir, "--mechanism", "mamba-2", "--decay", "fixed")...)
	refuses(t, "setting scale=1: unknown; allowed: state", littleRun(data, dir, "--mechanism", "mamba-2", "--set", "scale=1")...)
}
