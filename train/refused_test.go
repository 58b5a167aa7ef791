package train

import (
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/nn"
)

// TestRefusedCombinationsNameAWayOut goes through the choices of kind, mechanism, mixer,
// convolution, positions, pooling, decay and norm for a task of tokens, of numbers, of
// pairs, of the next token and of each position. What is refused says what to set or
// to leave out.
func TestRefusedCombinationsNameAWayOut(t *testing.T) {
	t.Parallel()
	specs := []task.Spec{
		{Name: "tokens", Kind: task.Class, Metric: task.Accuracy, Vocab: 9, Length: 64, Parts: 1, Classes: 2},
		{Name: "numbers", Kind: task.Class, Metric: task.Accuracy, Channels: 2, Length: 64, Parts: 1, Classes: 2},
		{Name: "pairs", Kind: task.Class, Metric: task.Accuracy, Vocab: 9, Length: 128, Parts: 2, Classes: 2},
		{Name: "next", Kind: task.Next, Metric: task.Accuracy, Vocab: 9, Length: 64, Parts: 1, Classes: 9},
		{Name: "levels", Kind: task.Level, Metric: task.Bits, Vocab: 9, Length: 64, Parts: 1, Outputs: 1},
		{Name: "labels", Kind: task.Labels, Metric: task.Accuracy, Channels: 2, Length: 64, Parts: 1, Classes: 3},
		{Name: "trace", Kind: task.Trace, Metric: task.MSE, Channels: 1, Length: 64, Parts: 1, Outputs: 1},
	}
	mechanisms := []string{"softmax", "fastmax"}
	if suite.IsLong() {
		mechanisms = append(mechanism.Names(), nn.MixerNames()...)
	} else {
		for _, name := range append(mechanism.Names(), nn.MixerNames()...) {
			if len(name)%4 == 0 && !slices.Contains(mechanisms, name) {
				mechanisms = append(mechanisms, name)
			}
		}
	}
	seen, refused, taken := map[string]bool{}, 0, 0
	for _, spec := range specs {
		spec.Count = [3]int{9, 9, 9}
		for _, kind := range []model.Kind{"", model.Decoder, model.Encoder, model.EncoderDecoder, model.Convolutional} {
			for _, name := range mechanisms {
				for i, change := range []func(c *Config){
					func(*Config) {},
					func(c *Config) { c.Model.Conv = 4 },
					func(c *Config) { c.Model.Conv = 5; c.Model.Positions, c.Model.Hidden = model.NoPosition, 0 },
					func(c *Config) { c.Model.Positions = model.Rotary },
					func(c *Config) { c.Model.Positions = model.NoPosition },
					func(c *Config) { c.Model.Pool = model.PoolCLS },
					func(c *Config) { c.Model.Pool = model.PoolLast },
					func(c *Config) { c.Model.Decay = model.FixedDecay },
					func(c *Config) { c.Model.KVHeads = 2 },
					func(c *Config) { c.Model.KVHeads = 3 },
					func(c *Config) { c.Model.Heads = 5 },
					func(c *Config) { c.Model.PostNorm = true },
					func(c *Config) { c.Model.Activation = model.ReLU },
					func(c *Config) { c.Model.AttentionDropout = 0.1 },
					func(c *Config) { c.Model.AttentionDropoutKind = "quadratic" },
					func(c *Config) { c.Model.AttentionDropout, c.Model.AttentionDropoutKind = 0.1, "quadratic" },
					func(c *Config) { c.Model.Context = 99 },
					func(c *Config) { c.FirstContext = 8 },
					func(c *Config) { c.Optimizer = Adam },
					func(c *Config) { c.Standardise = true },
					func(c *Config) { c.Segment = 8 },
				} {
					if i > 4 && name != "softmax" && i%3 != len(name)%3 && !suite.IsLong() {
						continue
					}
					c := samplePreset("copy", 5, 8)
					c.Model.Kind = kind
					c.SetMechanism(name)
					change(&c)
					_, _, err := c.PrepareTask(&bare{spec: spec})
					if err == nil {
						taken++
						continue
					}
					refused++
					text := err.Error()
					if !strings.Contains(text, "; set ") && !strings.Contains(text, "; leave out ") && !seen[text] {
						seen[text] = true
						t.Errorf("%s, kind %q, %s, change %d: no way out in: %s", spec.Name, kind, name, i, text)
					}
				}
			}
		}
	}
	if refused < 100 || taken < 100 {
		t.Errorf("%d were refused and %d taken", refused, taken)
	}
}
